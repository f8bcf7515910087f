"""Numbers of disks by name, for a compiled loop to look up."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.lines.field_loops import KEY_WORDS, KnownDisks, place_of

_FEWEST_PLACES = 64
_FEWEST_WORDS = 256
_WORD_NBYTES = 8


class DiskTable:
    """Names and their numbers.

    A loop may look names up while others are added: what it sees of a name that is just being added is not the
    name, and it takes it for one that is not known.

    Attributes:
        known: for the loops; another object after some ``add``.
    """

    def __init__(self) -> None:
        self._keys: list[tuple[NDArray[np.uint64], int]] = []
        self._seen: set[tuple[bytes, ...]] = set()
        self._n_words = 0
        self.known = _empty(_FEWEST_PLACES, _FEWEST_WORDS)

    def add(self, fields: Sequence[bytes], number: int) -> None:
        """Let a name, given by the fields that make it up, have a number; nothing happens if it has one."""
        if tuple(fields) in self._seen:
            return
        self._seen.add(tuple(fields))
        key = _key(fields)
        if len(key) > KEY_WORDS - 2:
            return  # the loops do not look up such names
        self._keys.append((key, number))
        if 2 * len(self._keys) <= len(self.known.number) and self._n_words + len(key) <= len(self.known.words):
            self._put(key, number)
            return
        n_words = sum(len(k) for k, _ in self._keys)
        self.known, self._n_words = _empty(4 * len(self._keys) + _FEWEST_PLACES, 2 * n_words), 0
        for old, its_number in self._keys:
            self._put(old, its_number)

    def _put(self, key: NDArray[np.uint64], number: int) -> None:
        begin, self._n_words = self._n_words, self._n_words + len(key)
        at = place_of(key, len(key), self.known)
        self.known.words[begin : self._n_words] = key
        self.known.begin[at], self.known.end[at] = begin, self._n_words
        self.known.number[at] = number


def _key(fields: Sequence[bytes]) -> NDArray[np.uint64]:
    """Words as ``field_loops.disk_numbers`` makes them of the text: a last word that is not full has its bytes at
    its upper end."""
    words: list[int] = []
    for field in fields:
        words.append(len(field))
        for begin in range(0, len(field), _WORD_NBYTES):
            part = field[begin : begin + _WORD_NBYTES]
            words.append(int.from_bytes(part.rjust(_WORD_NBYTES, b"\0"), "little"))
    return np.array(words, np.uint64)


def _empty(n_places: int, n_words: int) -> KnownDisks:
    n_places = 1 << (n_places - 1).bit_length()
    return KnownDisks(
        np.full(n_places, -1, np.int64),
        np.zeros(n_places, np.int64),
        np.zeros(n_places, np.int64),
        np.zeros(n_words, np.uint64),
    )
