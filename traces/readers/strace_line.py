"""One line of strace: who, when, which call, what it returned."""

import re
from dataclasses import dataclass

from cephfit.traces.readers.rows import decimal_ns
from cephfit.units import NS_PER_S

PREFIX = re.compile(
    rb"^(?:\[pid\s+(?P<pid>\d+)\]\s+|(?P<bare>\d+)\s+(?=\d\d:\d\d:\d\d|\d{9,}\.\d|[a-z_]\w*\(|<\.\.\.|\+\+\+|---))?"
    rb"(?:(?P<clock>\d\d:\d\d:\d\d(?:\.\d{1,9})?)\s+|(?P<epoch>\d{9,11}(?:\.\d{1,9})?)\s+)?"
)
_CALL = re.compile(rb"^(?P<name>[a-z_][a-z0-9_]*)\((?P<args>.*)\)\s*= (?P<ret>-?\d+|0x[0-9a-f]+|\?)(?P<tail>.*)$")
_BEGUN = re.compile(rb"^[a-z_][a-z0-9_]*\(")
_ATTACHED = re.compile(rb"strace: Process \d+ attached$")
_UNFINISHED = b"<unfinished ...>"
_RESUMED = re.compile(rb"^<\.\.\. (?P<name>[a-z_][a-z0-9_]*) resumed>(?P<rest>.*)$")
_TOOK = re.compile(rb"<(\d+\.\d+)>\s*$")
_EXIT = re.compile(rb"^(\+\+\+ (exited|killed)|--- SIG|--- stopped|\+\+\+ superseded|strace: )")
_DAY_NS = 86_400 * NS_PER_S


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that has returned.

    Attributes:
        pid: of the thread; 0 where the trace does not say.
        begun_ns: when it was called; None where the trace has no times.
        name, args: as strace prints them.
        ret: what it returned; None for ``?``.
        latency_ns: None without ``strace -T``.
        tail: what stands behind the returned number.
    """

    pid: int
    begun_ns: int | None
    name: bytes
    args: bytes
    ret: int | None
    latency_ns: int | None
    tail: bytes


class LineReader:
    """Joins calls that other threads interrupted, and counts the days where the clock passes midnight."""

    _OPEN_MAX = 1 << 16

    def __init__(self) -> None:
        self._open: dict[int, tuple[int | None, bytes]] = {}
        self._day_ns = 0
        self._latest_ns = -1
        self.whole_seconds = False
        """The clock has no fraction: ``strace -t``."""
        self.strict = False
        """Lines begin with a bare process number: ``strace -o`` wrote them, and no program's output is between."""

    def read(self, line: bytes) -> Call | bool:
        """A call, or whether the line is at all one of strace (a signal, an exit, half a call).

        Raises:
            ValueError: impossible numbers.
        """
        prefix = PREFIX.match(line)
        assert prefix is not None  # every part of it is optional
        pid = int(prefix["pid"] or prefix["bare"] or 0)
        text = line[prefix.end() :]
        self.strict |= prefix["bare"] is not None
        begun_ns = self._time_ns(prefix)
        if text.rstrip().endswith(_UNFINISHED) and _BEGUN.match(text):
            if len(self._open) < self._OPEN_MAX:
                self._open[pid] = begun_ns, text.rstrip()[: -len(_UNFINISHED)].rstrip(b", ")
            return True
        attached = _ATTACHED.search(text)
        if attached and _BEGUN.match(text):  # strace's own message on the same terminal, within a line
            if len(self._open) < self._OPEN_MAX:
                self._open[pid] = begun_ns, text[: attached.start()].rstrip(b", ")
            return True
        if text.strip() == _UNFINISHED:  # what was behind it
            return True
        resumed = _RESUMED.match(text)
        if resumed:
            begun_ns, before = self._open.pop(pid, (None, b""))
            if not before.startswith(resumed["name"] + b"("):
                return True  # its beginning is not in the trace
            rest = resumed["rest"].lstrip(b" ,")
            joint = b"" if before.endswith(b"(") or rest.startswith(b")") else b", "
            text = before + joint + rest
        call = _CALL.match(text)
        if call is None:
            return _EXIT.match(text) is not None
        took = _TOOK.search(call["tail"])
        ret = None if call["ret"] == b"?" else int(call["ret"], 0)
        return Call(
            pid,
            begun_ns,
            call["name"],
            call["args"],
            ret,
            decimal_ns(took[1], NS_PER_S) if took else None,
            call["tail"],
        )

    def _time_ns(self, prefix: re.Match[bytes]) -> int | None:
        if prefix["epoch"]:
            return decimal_ns(prefix["epoch"], NS_PER_S)
        if not prefix["clock"]:
            return None
        self.whole_seconds |= b"." not in prefix["clock"]
        hours, minutes, seconds = prefix["clock"].split(b":")
        of_day = (int(hours) * 60 + int(minutes)) * 60 * NS_PER_S + decimal_ns(seconds, NS_PER_S)
        time_ns = self._day_ns + of_day
        if time_ns < self._latest_ns - _DAY_NS // 2:
            self._day_ns += _DAY_NS
            time_ns += _DAY_NS
        self._latest_ns = max(self._latest_ns, time_ns)
        return time_ns
