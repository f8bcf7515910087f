"""blkparse's text in a user-defined format (``blkparse -f``), such as ``"%T.%t,%d,%a,%S,%n\n"``.

Directives are those of blkparse(1). If a file has several actions, one of them is counted.
"""

import re
from collections.abc import Iterator

from cephfit.core.errors import InputError
from cephfit.core.units import LBN_NBYTES, NS_PER_S
from cephfit.core.values.access import AccessBatch
from cephfit.traces.columns import DEVICE_MAX, LBN_MAX, NBYTES_MAX, TIME_NS_MAX
from cephfit.traces.files.stream import TextBlock, TraceStream, bad_line, text_blocks
from cephfit.traces.matching.completion_loop import ISSUED
from cephfit.traces.readers.block_events.blkparse_text import SUMMARY, lost_of
from cephfit.traces.readers.block_events.block_layer import (
    Action,
    BlockEvents,
    accesses_of,
    device_number,
    flush_row,
    packed_op,
    skip_reason,
)
from cephfit.traces.readers.reader import StreamReader

NAME = "blkparse-f"

_PATTERNS = {
    "a": rb"[A-Za-z]{1,2}",
    "c": rb"\d+",
    "C": rb".*?",
    "d": rb"[A-Z]+",
    "D": rb"\d+,\s*\d+",
    "e": rb"-?\d+",
    "g": rb"\S*",
    "m": rb"\d+",
    "M": rb"\d+",
    "n": rb"\d+",
    "N": rb"\d+",
    "p": rb"\d+",
    "P": rb".*?",
    "s": rb"\d+",
    "S": rb"\d+",
    "t": rb"\d+",
    "T": rb"\d+",
    "u": rb"\d+",
    "U": rb"\d*",
    "z": rb"[\d:.]+",
}
_LINE_MAX = 4096
"""Longer lines are invalid, and matching them would take long."""
_MESSAGE = re.compile(rb"^\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d{9}\s+\d+\s+m\s+N\s")
"""A message of the kernel (an I/O scheduler's, a cgroup's). blkparse prints it in its default format, also with
``-f``."""
_DIRECTIVE = re.compile(r"%(-?\d*)([a-zA-Z])")


class BlkparseFormatReader(StreamReader):
    """Reads the format that ``--blkparse-format`` gives. It is never detected from content."""

    name = NAME
    title = "text of blkparse -f, in the format that --blkparse-format gives"

    def __init__(self, layout: str | None = None, action: Action = Action.QUEUE) -> None:
        self.action = action
        self._kinds = action.kinds
        self.directives, self._line = _compiled(layout) if layout else (frozenset[str](), re.compile(rb"(?!)"))
        self.names_disks = "D" in self.directives or {"M", "m"} <= self.directives
        lacks = []
        if layout and "T" not in self.directives and "t" not in self.directives:
            lacks.append("time (%T, %t): no rates, no inter-arrival, no latency")
        if layout and not self.names_disks:
            lacks.append("device (%D, or %M and %m): all lines are counted as one disk")
        if layout and "a" not in self.directives:
            lacks.append("action (%a): every line is counted, so blkparse must have been run with one action only")
        self.lacks = tuple(lacks)

    def sniff(self, head: bytes) -> bool:
        return False

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        if not self.directives:
            raise InputError(
                "the output format of blkparse is unknown",
                where=stream.name,
                remedy="give blkparse's -f as --blkparse-format",
            )
        events = (self._events(stream, block) for block in text_blocks(stream))
        return accesses_of(events, with_flags=True, with_flushes=self.with_flushes)

    def _events(self, stream: TraceStream, block: TextBlock) -> BlockEvents:
        rows: list[tuple[int, int, int, int, int, int]] = []
        skipped: dict[str, int] = {}
        events: dict[str, int] = {}
        lost = 0
        for number, line in enumerate(block.lines, block.first):
            match = self._line.match(line) if len(line) <= _LINE_MAX else None
            if match is None:
                if _MESSAGE.match(line):
                    events["m"] = events.get("m", 0) + 1
                    continue
                if SUMMARY.match(line):
                    lost += lost_of(line, events)
                    continue
                cut_off = block.cut_off and line is block.lines[-1]
                raise bad_line(stream, number, line, "a line of that blkparse format", cut_off=cut_off)
            fields = match.groupdict()
            action = fields["a"].decode() if "a" in fields else self.action.value
            events[action] = events.get(action, 0) + 1
            kind = self._kinds.get(action)
            if kind is None or (action == "C" and "T" not in fields):
                continue
            try:
                sector, nbytes = int(fields["S"]), _nbytes_of(fields)
                if reason := skip_reason(fields["d"], nbytes, sector):
                    if kind == ISSUED:
                        skipped[reason] = skipped.get(reason, 0) + 1
                    if reason == "flush":
                        flush = _row(fields, kind, 0, 0)
                        rows.append(flush_row(kind, flush[1], fields["d"], flush[-1]))
                    continue
                rows.append(_row(fields, kind, sector, nbytes))
            except ValueError:
                raise bad_line(stream, number, line, "numbers that an access can have") from None
        return BlockEvents.of_rows(rows, skipped=skipped, events=events, lost=lost)


def _nbytes_of(fields: dict[str, bytes]) -> int:
    return int(fields["N"]) if "N" in fields else int(fields["n"]) * LBN_NBYTES


def _row(fields: dict[str, bytes], kind: int, sector: int, nbytes: int) -> tuple[int, int, int, int, int, int]:
    """Return the row of a line.

    Raises:
        ValueError: a number is impossible.
    """
    time_ns = int(fields.get("T", b"0")) * NS_PER_S + int(fields.get("t", b"0"))
    if "D" in fields:
        device = device_number(fields["D"])
    else:
        device = int(fields.get("M", b"0")) << 20 | int(fields.get("m", b"0"))
    if time_ns >= TIME_NS_MAX or sector >= LBN_MAX or nbytes >= NBYTES_MAX or device >= DEVICE_MAX:
        raise ValueError("impossible")
    return kind, time_ns, packed_op(fields["d"]), sector, nbytes, device


def _compiled(layout: str) -> tuple[frozenset[str], re.Pattern[bytes]]:
    """Return the directives of a format, and a pattern of its lines.

    Raises:
        InputError: a directive is unknown, or one that a profile needs is missing.
    """
    text = layout.replace("\\n", "").replace("\n", "").replace("\\t", "\t")
    pattern, place, seen = b"^", 0, set[str]()
    for match in _DIRECTIVE.finditer(text):
        pattern += _literal(text[place : match.start()])
        name = match[2]
        if name not in _PATTERNS:
            raise _wrong(f"%{name} is not a directive of blkparse", layout)
        group = b"" if name in seen or name in "CP" else b"?P<" + name.encode() + b">"
        pattern += rb"\s*(" + group + _PATTERNS[name] + rb")"
        seen.add(name)
        place = match.end()
    pattern += _literal(text[place:]) + rb"\s*$"
    for need, why in (("d", "whether it is a read"), ("S", "the sector")):
        if need not in seen:
            raise _wrong(f"the format has no %{need}: {why} is unknown", layout)
    if not seen & {"n", "N"}:
        raise _wrong("the format has neither %n nor %N: the size is unknown", layout)
    return frozenset(seen), re.compile(pattern)


def _literal(text: str) -> bytes:
    """Escape literal text. Blanks match any run of blanks, because blkparse pads its fields."""
    parts = re.split(r"(\s+)", text)
    return b"".join(rb"\s+" if p.isspace() else re.escape(p.encode()) for p in parts if p)


def _wrong(what: str, layout: str) -> InputError:
    return InputError(
        what,
        where=f"--blkparse-format {layout!r}",
        remedy="use a format with at least %a %d %S %n, better %T.%t and %D",
    )
