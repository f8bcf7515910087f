"""Text traces, block by block of whole lines, with the line's number known for every error."""

from collections.abc import Iterator
from dataclasses import dataclass

from cephfit.errors import InputError
from cephfit.traces.files.stream import HEAD_NBYTES, TraceStream

_BLOCK_NBYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Consecutive whole lines.

    Attributes:
        lines: without their line ends.
        first: number of the first one in the file, from 1.
        cut_off: whether the last one has no line end: it may be cut off.
    """

    lines: list[bytes]
    first: int
    cut_off: bool


def text_blocks(stream: TraceStream) -> Iterator[TextBlock]:
    """Raises: InputError: a line is longer than 64 KiB, so this is no text."""
    rest, first = b"", 1
    while True:
        fresh = stream.read(_BLOCK_NBYTES)
        block = rest + fresh
        if not fresh:
            if block:
                yield TextBlock(block.splitlines(), first, cut_off=True)
            return
        end = block.rfind(b"\n") + 1
        rest = block[end:]
        if len(rest) > HEAD_NBYTES:
            raise no_text(stream, len(rest))
        lines = block[:end].split(b"\n")[:-1]
        yield TextBlock(lines, first, cut_off=False)
        first += len(lines)


def bad_line(stream: TraceStream, number: int, line: bytes, expected: str, *, cut_off: bool = False) -> InputError:
    """The error for a line that is not what the format says."""
    shown = line[:80].decode("utf-8", "replace")
    if cut_off:
        return InputError(
            f"the trace is cut off within its last line: {shown!r}",
            where=f"{stream.name}, line {number} (byte {stream.offset - len(line)})",
            remedy="copy the file again, or delete its last line and profile what is there",
        )
    return InputError(
        f"not {expected}: {shown!r}",
        where=f"{stream.name}, line {number}",
        remedy="delete the line if it is not the trace's; --format FORMAT reads the file as another format",
    )


def impossible_numbers(stream: TraceStream, number: int, line: bytes) -> InputError:
    """The error for a line whose numbers no access can have."""
    return InputError(
        f"a number is impossible: {line[:80].decode('utf-8', 'replace')!r}",
        where=f"{stream.name}, line {number}",
        remedy="the line is damaged: delete it, or copy the file again",
    )


def no_text(stream: TraceStream, nbytes: int) -> InputError:
    """The error for a line that has no end after ``nbytes``, which were read last."""
    return InputError(
        "a line is longer than 64 KiB: this is not text",
        where=f"{stream.name}, byte {stream.offset - nbytes}",
        remedy="the file is damaged or of another format: cut it at this byte, or name its format by --format",
    )
