"""Plain lines, which a compiled loop reads, within text that Python reads line by line elsewhere.

The text comes in blocks of whole lines, in buffers with the spare bytes around them that the compiled loops need.
One thread per core parses blocks ahead. Python then processes the rest in the order of the file. So all cores are
used for any file, also a compressed one or a pipe, and the accesses come out as from one thread.

``PlainLine`` describes the plain lines of a delimited format, which ``delimited_loop`` may read, and ``DiskTable``
holds its disk names.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.units import LBN_NBYTES
from cephfit.traces.columns import LBN_MAX, NBYTES_MAX, TIME_NS_MAX, Accesses
from cephfit.traces.lines import delimited_loop as loop
from cephfit.traces.lines import text_bytes
from cephfit.traces.lines.delimited_loop import Fields
from cephfit.traces.lines.field_loops import KEY_WORDS, KnownDisks, place_of
from cephfit.traces.lines.text_bytes import BEFORE_NBYTES, N_BYTES
from cephfit.traces.stream import HEAD_NBYTES, TextBlock, TraceStream, n_cores, not_text

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


_FEWEST_PLACES = 64
_FEWEST_WORDS = 256
_WORD_NBYTES = 8


class DiskTable:
    """Disk names and their numbers.

    A loop may look up names while others are added. It sees a name that is just being added as incomplete, and
    treats it as unknown.

    Attributes:
        known: the table for the loops; ``add`` may replace it.
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
    """Return the words that ``field_loops.disk_numbers`` computes from the text.

    A last word that is not full has its bytes at its upper end.
    """
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


OP_NBYTES = 8
"""Longest spelling of an op that the loop can read."""

_FEW = 16
_LBN_BITS = LBN_NBYTES.bit_length() - 1


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its kind in ``delimited_loop`` and, for a number, its digits before the point."""

    kind: int
    least: int = 1
    most: int = 18


TEXT, OP, HEXADECIMAL = Field(loop.TEXT), Field(loop.OP), Field(loop.HEXADECIMAL)
IGNORED, UNQUOTED = Field(loop.IGNORED), Field(loop.UNQUOTED)
DIGITS, DECIMAL = Field(loop.DIGITS), Field(loop.DECIMAL)
DECIMAL_OR_WHOLE = Field(loop.DECIMAL_OR_NOTHING)
DECIMAL_OR_NOTHING = Field(loop.DECIMAL_OR_NOTHING, least=0)


@dataclass(frozen=True, slots=True)
class PlainLine:
    """A line that the loop may read; every such line must be a row of its format.

    Attributes:
        fields: exactly these.
        reads, writes: spellings of the op, up to ``OP_NBYTES`` each.
        padded: white space may surround fields.
    """

    fields: tuple[Field, ...]
    reads: tuple[bytes, ...]
    writes: tuple[bytes, ...]
    padded: bool = False

    def of_length(self, n: int) -> "PlainLine":
        """Return the same with additional ignored fields, up to ``n``."""
        return replace(self, fields=(*self.fields, *[IGNORED] * (n - len(self.fields))))


@dataclass(frozen=True, slots=True)
class Constants:
    """Values that options give for all lines; None where the lines contain them."""

    time_ns: int | None = None
    op: int | None = None
    nbytes: int | None = None


def fields_of(
    plain: PlainLine,
    *,
    separator: bytes | None,
    columns: Sequence[int | None],
    disk: Sequence[int],
    time_unit_ns: int,
    time_origin: int = 0,
    offset_unit: int,
    length_unit: int,
    time_max_ns: int = TIME_NS_MAX,
    latency_unit_ns: int | None = None,
) -> Fields:
    """Return the structure of the lines for the loop.

    ``columns`` are those of time, op, offset, length and latency. The latency is in the unit of time if
    ``latency_unit_ns`` is None. Columns that the line does not have are ignored.
    """
    n = len(plain.fields)
    columns = [c if c is not None and c < n else None for c in columns]
    m = max(len(plain.reads), len(plain.writes))
    ops = np.zeros((2, m), np.uint64)
    for row, spellings in zip(ops, (plain.reads, plain.writes), strict=True):
        row[: len(spellings)] = [loop.packed(s) for s in spellings]
    time, _, offset, length, latency = columns
    time_max = time_max_ns // time_unit_ns - 1  # below the limit with any fraction
    latency_unit = latency_unit_ns or time_unit_ns
    meanings = (
        (time, loop.TIME, (time_origin, time_unit_ns, 0, -time_max, time_max)),
        (offset, loop.OFFSET, (0, offset_unit, _LBN_BITS, 0, (LBN_MAX * LBN_NBYTES - 1) // offset_unit)),
        (length, loop.LENGTH, (0, length_unit, 0, 1, (NBYTES_MAX - 1) // length_unit)),
        (latency, loop.LATENCY, (0, latency_unit, 0, 0, time_max_ns // latency_unit - 1)),
    )
    kept_as = np.full(n, loop.NOTHING, np.int64)
    scales = np.tile(np.array([0, 1, 0, 0, np.iinfo(np.int64).max], np.int64), (n, 1))
    for column, meaning, scale in meanings:
        if column is not None:
            kept_as[column % n], scales[column % n] = meaning, scale
    trims = np.full(n, text_bytes.TRIMMED if plain.padded and separator else text_bytes.NOT_TRIMMED, np.int64)
    trims[-1] = text_bytes.TRIMMED_AT_END + (text_bytes.TRIMMED if plain.padded and separator else 0)
    return Fields(
        separator=separator[0] if separator else 0,
        indented=plain.padded,
        kinds=np.array([f.kind for f in plain.fields], np.int64),
        trims=trims,
        least_digits=np.array([f.least for f in plain.fields], np.int64),
        most_digits=np.array([f.most for f in plain.fields], np.int64),
        kept_as=kept_as,
        scales=scales,
        disk=np.array([c % n for c in disk], np.int64),
        ops=ops,
        timed=latency is not None,
    )


def parse(
    fields: Fields,
    disks: DiskTable,
    text: NDArray[np.uint8],
    at: int,
    stop: int,
    constants: Constants = Constants(),
) -> tuple[int, int, Accesses]:
    """Read plain lines from byte ``at`` to byte ``stop``.

    Returns:
        the number of lines, the first byte after them, and the rows.
    """
    rows = Accesses.none().with_capacity((stop - at) // (2 * len(fields.kinds)) + 1)
    n, end = loop.parse(
        text, at, stop, fields, disks.known,
        rows.time_ns, rows.op, rows.lbn, rows.nbytes, rows.disk, rows.latency_ns,
    )  # fmt: skip
    # Few rows are copied, so that the memory of the large arrays is released.
    rows = rows.cut(0, n) if _FEW * n > len(rows) else rows.cut(0, n).with_capacity(0)
    if constants.time_ns is not None:
        rows.time_ns.fill(constants.time_ns)
    if constants.op is not None:
        rows.op.fill(constants.op)
    if constants.nbytes is not None:
        rows.nbytes.fill(constants.nbytes)
    return n, end, rows
