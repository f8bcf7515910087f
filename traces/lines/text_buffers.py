"""Text in blocks of whole lines, in buffers with the room around it that the compiled loops need."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.files.stream import HEAD_NBYTES, TraceStream
from cephfit.traces.files.text import no_text
from cephfit.traces.lines.byte_masks import N_BYTES
from cephfit.traces.lines.digits import BEFORE_NBYTES

BLOCK_NBYTES = 1 << 21
"""Joining the counts of a batch costs as much as reading thousands of lines."""

_BEFORE = -(-BEFORE_NBYTES // N_BYTES) * N_BYTES
_ROOM = _BEFORE + HEAD_NBYTES + BLOCK_NBYTES + N_BYTES


@dataclass(frozen=True, slots=True)
class TextBuffer:
    """Consecutive lines.

    Attributes:
        text: uint8, with room before and behind the lines.
        begin, end: the bytes of it that are whole lines.
        stop: the end of a line behind them that has no line end: the last one of a file.
        is_last: whether no other block follows.
    """

    text: NDArray[np.uint8]
    begin: int
    end: int
    stop: int
    is_last: bool

    def cut(self, begin: int, stop: int) -> bytes:
        return self.text[begin:stop].tobytes()


class TextBuffers:
    """The blocks of a stream. Buffers are used again once they were given back: fresh memory costs the kernel as
    much as the reading."""

    def __init__(self, stream: TraceStream) -> None:
        self._stream = stream
        self._free: list[NDArray[np.uint8]] = []

    def give_back(self, block: TextBuffer) -> None:
        """Nobody looks at the block any more."""
        self._free.append(block.text)

    def blocks(self) -> Iterator[TextBuffer]:
        """Blocks of about ``BLOCK_NBYTES``, cut at line ends; the last one may be empty.

        Raises:
            InputError: a line is longer than 64 KiB, so this is no text.
        """
        rest = b""
        is_last = False
        while not is_last:
            text = self._free.pop() if self._free else np.zeros(_ROOM, np.uint8)
            fresh = _BEFORE + len(rest)
            text[_BEFORE:fresh] = np.frombuffer(rest, np.uint8)
            n = self._stream.readinto(memoryview(text.data)[fresh : fresh + BLOCK_NBYTES])
            is_last, stop = n < BLOCK_NBYTES, fresh + n
            end = _after_last_newline(text, _BEFORE, stop)
            if stop - end > HEAD_NBYTES:
                raise no_text(self._stream, stop - end)
            rest = text[end:stop].tobytes()
            yield TextBuffer(text, _BEFORE, end, stop if is_last else end, is_last)


def _after_last_newline(text: NDArray[np.uint8], begin: int, stop: int) -> int:
    """Where the line begins that has no end before ``stop``; not found if it is longer than lines may be."""
    nearest = max(begin, stop - HEAD_NBYTES - 1)
    return nearest + text[nearest:stop].tobytes().rfind(b"\n") + 1
