"""Text that a compiled loop reads where its lines are plain, and Python reads line by line elsewhere.

The text comes in blocks of whole lines, in buffers with the spare bytes around them that the compiled loops need.
One thread per core parses blocks ahead. Python then processes the rest in the order of the file. So all cores are
used for any file, also a compressed one or a pipe, and the accesses come out as from one thread.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.traces.files.stream import HEAD_NBYTES, TextBlock, TraceStream, n_cores, not_text
from cephfit.traces.lines.text_bytes import BEFORE_NBYTES, N_BYTES

BLOCK_NBYTES = 1 << 21
"""Size of a block. Joining the counts of a batch costs as much as reading thousands of lines."""

_BEFORE = -(-BEFORE_NBYTES // N_BYTES) * N_BYTES
_BUFFER_NBYTES = _BEFORE + HEAD_NBYTES + BLOCK_NBYTES + N_BYTES


@dataclass(frozen=True, slots=True)
class TextBuffer:
    """Consecutive lines.

    Attributes:
        text: uint8, with spare bytes before and after the lines.
        begin, end: the bytes that are whole lines.
        stop: end of a following line without a line end: the last line of a file.
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
    """The blocks of a stream.

    Buffers are reused after they were returned: the kernel needs as much time for fresh memory as the reading
    takes.
    """

    def __init__(self, stream: TraceStream) -> None:
        self._stream = stream
        self._free: list[NDArray[np.uint8]] = []

    def give_back(self, block: TextBuffer) -> None:
        """Return the buffer of a block that is no longer used."""
        self._free.append(block.text)

    def blocks(self) -> Iterator[TextBuffer]:
        """Yield blocks of about ``BLOCK_NBYTES``, cut at line ends. The last one may be empty.

        Raises:
            InputError: a line is longer than 64 KiB, so this is not text.
        """
        rest = b""
        is_last = False
        while not is_last:
            text = self._free.pop() if self._free else np.zeros(_BUFFER_NBYTES, np.uint8)
            fresh = _BEFORE + len(rest)
            text[_BEFORE:fresh] = np.frombuffer(rest, np.uint8)
            n = self._stream.readinto(memoryview(text.data)[fresh : fresh + BLOCK_NBYTES])
            is_last, stop = n < BLOCK_NBYTES, fresh + n
            end = _after_last_newline(text, _BEFORE, stop)
            if stop - end > HEAD_NBYTES:
                raise not_text(self._stream, stop - end)
            rest = text[end:stop].tobytes()
            yield TextBuffer(text, _BEFORE, end, stop if is_last else end, is_last)


def _after_last_newline(text: NDArray[np.uint8], begin: int, stop: int) -> int:
    """Return where the line begins that has no end before ``stop``. A line that is too long is not found."""
    nearest = max(begin, stop - HEAD_NBYTES - 1)
    return nearest + text[nearest:stop].tobytes().rfind(b"\n") + 1


_FEW_LINES = 16
"""A compiled loop that stops after so few lines was not worth its call: the next section in Python is longer."""
_MOST_LINES = 4096

_T = TypeVar("_T")


class LineParser(ABC, Generic[_T]):
    """A parser of the lines of one format, with a fast and a general way."""

    @abstractmethod
    def plain(self, text: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int, _T]:
        """Read plain lines from byte ``at`` to byte ``stop``, a line end. It may stop earlier.

        It runs in any thread for any part of the file, so it does not know what precedes.

        Returns:
            the number of lines read, the first byte after them, and their content.
        """

    def accept(self, n_lines: int, result: _T) -> None:
        """Accept the next result of ``plain`` in the order of the file."""

    @abstractmethod
    def any_line(self, block: TextBlock) -> _T:
        """Read the lines at which ``plain`` stopped, and a last line without a line end.

        Raises:
            InputError: the error names the file and the line.
        """


def parse_stream(stream: TraceStream, parser: LineParser[_T]) -> Iterator[list[_T]]:
    """Parse a stream; yield the results of each block, in order.

    Raises:
        InputError: a line is longer than 64 KiB, so this is not text; and what ``any_line`` raises.
    """
    buffers = TextBuffers(stream)
    number = 1
    for block, parsed in _parsed_ahead(buffers, parser, _n_threads(stream)):
        found, number = _parsed_block(stream, block, parsed, parser, number)
        buffers.give_back(block)
        if found:
            yield found


def _n_threads(stream: TraceStream) -> int:
    return 1 if stream.is_read_in_parallel else n_cores()


def _parsed_ahead(
    buffers: TextBuffers, parser: LineParser[_T], n_threads: int
) -> Iterator[tuple[TextBuffer, tuple[int, int, _T]]]:
    """Yield blocks with the result of ``plain`` from their beginnings.

    Raises:
        InputError: the stream's error, after everything that precedes it.
    """

    def plain(block: TextBuffer) -> tuple[int, int, _T]:
        return parser.plain(block.text, block.begin, block.end)

    waiting: deque[tuple[TextBuffer, Future[tuple[int, int, _T]]]] = deque()
    blocks, unread = buffers.blocks(), True
    error: InputError | None = None
    with ExitStack() as stack:
        pool: ThreadPoolExecutor | None = None
        while unread or waiting:
            try:
                block = next(blocks, None) if unread else None
            except InputError as found:
                block, error = None, found
            unread = block is not None
            if block is not None and pool is None:
                if n_threads == 1 or block.is_last:
                    yield block, plain(block)
                    continue
                pool = ThreadPoolExecutor(n_threads, thread_name_prefix="plain lines")
                stack.callback(pool.shutdown, cancel_futures=True)
            if block is not None and pool is not None:
                waiting.append((block, pool.submit(plain, block)))
            if waiting and (len(waiting) > n_threads or not unread):
                first, parsed = waiting.popleft()
                yield first, parsed.result()
    if error is not None:
        raise error


def _parsed_block(
    stream: TraceStream, block: TextBuffer, parsed: tuple[int, int, _T], parser: LineParser[_T], number: int
) -> tuple[list[_T], int]:
    """Return the results of a block, and the number of the first line after it."""
    found: list[_T] = []
    at, n_slow = block.begin, 1
    text = b""
    while at < block.end:
        n_read, at, result = parsed if not found else parser.plain(block.text, at, block.end)
        parser.accept(n_read, result)
        found.append(result)
        number += n_read
        if at == block.end:
            break
        n_slow = min(2 * n_slow, _MOST_LINES) if n_read < _FEW_LINES else 1
        text = text or block.cut(0, block.end)
        stop, n_lines = at, 0
        while stop < block.end and n_lines < n_slow:
            stop, n_lines = text.index(b"\n", stop) + 1, n_lines + 1
        found.append(parser.any_line(TextBlock(text[at : stop - 1].split(b"\n"), number, cut_off=False)))
        number, at = number + n_lines, stop
    rest = block.cut(block.end, block.stop)
    if rest:
        found.append(parser.any_line(TextBlock(rest.splitlines(), number, cut_off=True)))
    return found, number
