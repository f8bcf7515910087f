"""Text read by a compiled loop where its lines are plain, and line by line in Python where they are not."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cephfit.errors import InputError
from cephfit.traces.stream import HEAD_NBYTES, TraceStream
from cephfit.traces.text import TextBlock

_BLOCK_NBYTES = 1 << 20
_FEW_LINES = 16
"""A compiled loop that stops after so few lines was hardly worth it: the next stretch in Python is longer."""
_MOST_LINES = 4096

_T = TypeVar("_T")


def read_by_turns(
    stream: TraceStream,
    plain: Callable[[NDArray[np.uint8], int], tuple[int, int, _T]],
    any_line: Callable[[TextBlock], _T],
) -> Iterator[list[_T]]:
    """Read a stream block by block; each gives what its stretches gave, in order.

    Args:
        stream: of lines.
        plain: gets a block of whole lines and the byte to begin at; returns how many lines it read, the first byte
            after them, and what they gave. It may stop where it likes.
        any_line: reads the lines that ``plain`` stopped at, and a last one without a line end.

    Raises:
        InputError: a line is longer than 64 KiB, so this is no text; and what ``any_line`` raises.
    """
    rest, number = b"", 1
    while True:
        fresh = stream.read(_BLOCK_NBYTES)
        block = rest + fresh if rest else fresh
        if not fresh:
            if block:
                yield [any_line(TextBlock(block.splitlines(), number, cut_off=True))]
            return
        end = block.rfind(b"\n") + 1
        rest = block[end:]
        if len(rest) > HEAD_NBYTES:
            raise InputError(
                "a line is longer than 64 KiB: this is no text",
                where=f"{stream.name}, byte {stream.offset - len(rest)}",
            )
        whole = np.frombuffer(block, np.uint8, count=end)
        found: list[_T] = []
        at, n_slow = 0, 1
        while at < end:
            n_read, at, gave = plain(whole, at)
            found.append(gave)
            number += n_read
            if at == end:
                break
            n_slow = min(2 * n_slow, _MOST_LINES) if n_read < _FEW_LINES else 1
            stop, n_lines = at, 0
            while stop < end and n_lines < n_slow:
                stop, n_lines = block.index(b"\n", stop) + 1, n_lines + 1
            found.append(any_line(TextBlock(block[at : stop - 1].split(b"\n"), number, cut_off=False)))
            number, at = number + n_lines, stop
        if found:
            yield found
