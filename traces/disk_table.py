"""Numbers of disks by name, for a compiled loop to look up."""

import numpy as np

from cephfit.traces.delimited_loop import KnownDisks, place_of

_FEWEST_PLACES = 64


class DiskTable:
    """Names and their numbers, in the order in which they were added.

    Attributes:
        known: for ``delimited_loop.parse``; another object after every ``add``.
    """

    def __init__(self) -> None:
        self._names: list[bytes] = []
        self.known = _empty(_FEWEST_PLACES)
        self._n_bytes = 0

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: bytes) -> None:
        """Number a name that has none yet."""
        self._names.append(name)
        if 2 * len(self._names) > len(self.known.number):
            self.known = _empty(2 * len(self.known.number))._replace(names=self.known.names)
            self._n_bytes = 0
            for number, old in enumerate(self._names):
                self._put(old, number)
        else:
            self._put(name, len(self._names) - 1)

    def _put(self, name: bytes, number: int) -> None:
        begin, end = self._n_bytes, self._n_bytes + len(name)
        if end > len(self.known.names):
            names = np.zeros(2 * end, np.uint8)
            names[:begin] = self.known.names[:begin]
            self.known = self.known._replace(names=names)
        letters = np.frombuffer(name, np.uint8)
        at = place_of(letters, self.known)
        self.known.names[begin:end] = letters
        self.known.number[at], self.known.begin[at], self.known.end[at] = number, begin, end
        self._n_bytes = end


def _empty(n_places: int) -> KnownDisks:
    return KnownDisks(
        np.full(n_places, -1, np.int64),
        np.zeros(n_places, np.int64),
        np.zeros(n_places, np.int64),
        np.zeros(1024, np.uint8),
    )
