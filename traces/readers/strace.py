"""strace's output: reads and writes of files by a process, with ``-f``, ``-tt`` or ``-ttt``, and ``-T``.

A parser reads one line: process, time, call, and returned value. It also tracks which file a descriptor refers to,
and the position of its next read or write.

The bytes counted are those that the calls returned (``ret``), not those requested. If a call has no offset, the
position is tracked through open, lseek, dup and fork. Best recorded with ``strace -f -ttt -T -e
trace=desc,file,process -o FILE PROGRAM``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from cephfit.core.units import LBN_NBYTES, NS_PER_S
from cephfit.traces.columns import OP_READ, OP_WRITE, UNKNOWN_LATENCY, AccessBatch
from cephfit.traces.readers.reader import Rows, StreamReader, UnknownLines, batches_of, clock_ns_of, decimal_ns
from cephfit.traces.stream import TraceStream, bad_line, text_blocks

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
        pid: of the thread; 0 if the trace lacks it.
        begun_ns: when it was called; None if the trace has no times.
        name, args: as strace prints them.
        ret: the returned value; None for ``?``.
        latency_ns: None without ``strace -T``.
        tail: the text after the returned value.
    """

    pid: int
    begun_ns: int | None
    name: bytes
    args: bytes
    ret: int | None
    latency_ns: int | None
    tail: bytes


class LineReader:
    """Joins calls that other threads interrupted, and counts days when the clock passes midnight."""

    _OPEN_MAX = 1 << 16

    def __init__(self) -> None:
        self._open: dict[int, tuple[int | None, bytes]] = {}
        self._day_ns = 0
        self._latest_ns = -1
        self.whole_seconds = False
        """The clock has no fraction: ``strace -t``."""
        self.strict = False
        """Lines begin with a bare process number: ``strace -o`` wrote them, so no output of the program is
        mixed in."""

    def read(self, line: bytes) -> Call | bool:
        """Return a call, or whether the line is another line of strace (a signal, an exit, half a call).

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
        if text.strip() == _UNFINISHED:  # the rest of a split line
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


_NOT_ON_A_DISK = re.compile(
    r"^(/proc/|/sys/|/dev/(null|zero|full|random|urandom|tty|pts|ptmx|std|fd/|shm/|console|kmsg)|pipe:|socket:|"
    r"anon_inode:|/memfd:|(TCP|UDP|UNIX|NETLINK)\w*:)"
)


@dataclass(slots=True)
class OpenFile:
    """An open file description, shared by all descriptors duplicated from it.

    Attributes:
        path: as the program named it.
        position: of the next read or write; None: unknown.
        on_disk: it is a file or block device, judged by its name.
        closed_by_exec: O_CLOEXEC.
    """

    path: str
    position: int | None = 0
    on_disk: bool = True
    closed_by_exec: bool = False

    @classmethod
    def named(cls, path: str, position: int | None = 0, *, closed_by_exec: bool = False) -> "OpenFile":
        return cls(path, position, _NOT_ON_A_DISK.match(path) is None, closed_by_exec)


@dataclass(slots=True)
class Descriptors:
    """The descriptors of one process; its threads share them."""

    files: dict[int, OpenFile] = field(default_factory=dict)

    def copied(self) -> "Descriptors":
        """Copy as fork does: new descriptors of the same open files."""
        return Descriptors(dict(self.files))


class Processes:
    """All processes of a trace.

    Before its creator's call returns, a thread is assumed to share the descriptors of the process that called
    last.
    """

    _MAX = 1 << 16

    def __init__(self) -> None:
        self._tables: dict[int, Descriptors] = {}
        self._latest = Descriptors()

    def of(self, pid: int) -> Descriptors:
        table = self._tables.get(pid)
        if table is None:
            table = self._latest
            if len(self._tables) < self._MAX:
                self._tables[pid] = table
        self._latest = table
        return table

    def begun(self, parent: int, child: int, *, shares: bool) -> None:
        table = self.of(parent)
        if len(self._tables) >= self._MAX:
            return
        if shares:
            self._tables[child] = table
        elif self._tables.get(child, table) is table:  # the first lines of the child may precede the return
            self._tables[child] = table.copied()


_AT_POSITION = {b"read": OP_READ, b"readv": OP_READ, b"write": OP_WRITE, b"writev": OP_WRITE}
_AT_OFFSET = {
    b"pread64": (OP_READ, 1),
    b"pread": (OP_READ, 1),
    b"preadv": (OP_READ, 1),
    b"preadv2": (OP_READ, 2),
    b"pwrite64": (OP_WRITE, 1),
    b"pwrite": (OP_WRITE, 1),
    b"pwritev": (OP_WRITE, 1),
    b"pwritev2": (OP_WRITE, 2),
}
"""Op, and the position of the offset argument from the right."""
_OPENS = frozenset({b"open", b"openat", b"openat2", b"creat"})
_DUPS = frozenset({b"dup", b"dup2", b"dup3"})
_FORKS = frozenset({b"clone", b"clone3", b"fork", b"vfork"})
_NOT_FILES = frozenset(
    {b"socket", b"accept", b"accept4", b"epoll_create1", b"eventfd2", b"signalfd4", b"memfd_create"}
)
_SKIPPED = {
    b"fsync": "flush",
    b"fdatasync": "flush",
    b"syncfs": "flush",
    b"sync_file_range": "writeback",  # it does not flush the cache of the disk
    b"fallocate": "allocation",
    b"copy_file_range": "copy within the kernel",
    b"sendfile": "copy within the kernel",
    b"splice": "copy within the kernel",
}
_MMAPS = frozenset({b"mmap", b"mmap2"})

_HEAD_LINES = 1000

_STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_DESCRIPTOR = re.compile(rb"^\s*(-?\d+)(?:<(.*?)>+(?=\s*(?:,|$)))?")
_ANSWER_PATH = re.compile(rb"^<(.*?)>(?=\s|$)")
_CALL_LIKE = re.compile(
    rb"^[a-z_][a-z0-9_]*\(.*(\)\s*= (-?\d|0x|\?)|<unfinished \.\.\.>)|^<\.\.\. \w+ resumed>|^\+\+\+ |^--- SIG"
)


class StraceReader(StreamReader):
    """Reads strace's output. Every file is a disk, and LBN are offsets within the file."""

    name = "strace"
    title = "strace (reads and writes of files; with -f -tt or -ttt, and -T)"
    names_disks = True
    note = (
        "these are system calls on files, before the page cache: LBN are offsets within a file, every file is a "
        "disk, and accesses by mmap, io_uring or libaio are missing"
    )

    def __init__(self) -> None:
        self.lacks: tuple[str, ...] = ()

    def sniff(self, head: bytes) -> bool:
        lines = [line for line in head.splitlines()[:50] if line.strip()][:5]
        prefixes = [PREFIX.match(line) for line in lines]
        return any(p and _CALL_LIKE.match(line[p.end() :]) for p, line in zip(prefixes, lines, strict=True))

    def clock_ns(self, stream: TraceStream) -> int:
        prefixes = [PREFIX.match(line) for line in stream.head().splitlines()[:_HEAD_LINES]]
        return clock_ns_of([t for p in prefixes if p and (t := p["clock"] or p["epoch"])], NS_PER_S)

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        calls, lines = Calls(), LineReader()
        yield from batches_of(self._stretches(stream, calls, lines), timed=True, in_order=False)
        coarse = ("time: whole seconds (strace -tt or -ttt prints more)",) if lines.whole_seconds else ()
        self.lacks = (*calls.lacks(), *coarse)

    def _stretches(self, stream: TraceStream, calls: "Calls", reader: LineReader) -> Iterator[Rows]:
        unknown_lines = UnknownLines(stream, "a line of strace")
        for block in text_blocks(stream):
            for number, line in enumerate(block.lines, block.first):
                if not line.strip():
                    continue
                cut_off = block.cut_off and line is block.lines[-1]
                try:
                    call = reader.read(line)
                    if isinstance(call, Call):
                        calls.take(call)
                except ValueError:
                    raise bad_line(
                        stream, number, line, "numbers that an access can have", cut_off=cut_off
                    ) from None
                if call is not False:
                    unknown_lines.known()
                    continue
                unknown_lines.unknown(number, line, strict=reader.strict, cut_off=cut_off)
                calls.rows.skip("line of the program itself")
            yield calls.rows.take()


class Calls:
    """Tracks the calls of all processes."""

    def __init__(self) -> None:
        self.rows = Rows()
        self._processes = Processes()
        self._timed = self._untimed = self._without_latency = 0

    def lacks(self) -> tuple[str, ...]:
        """Return what the trace lacked, known after reading."""
        lacks = ["the place on the disk: LBN are offsets within each file"]
        if self._untimed:
            lacks.append(f"time: {self._untimed} calls have none (strace -tt or -ttt prints it)")
        if self._without_latency:
            lacks.append(f"latency: {self._without_latency} calls have none (strace -T prints it)")
        return tuple(lacks)

    def take(self, call: Call) -> None:
        """Process a call.

        Raises:
            ValueError: impossible numbers.
        """
        if call.ret is None or call.ret < 0:
            if call.name in _AT_POSITION or call.name in _AT_OFFSET:
                self.rows.skip("failed")
            return
        if call.name in _AT_OFFSET:
            self._at_offset(call, *_AT_OFFSET[call.name])
        elif call.name in _AT_POSITION:
            self._at_position(call, _AT_POSITION[call.name])
        elif call.name in _OPENS:
            self._open(call, call.ret)
        elif call.name in (b"lseek", b"_llseek"):
            self._seek(call, call.ret)
        elif call.name in _SKIPPED:
            self.rows.skip(_SKIPPED[call.name])
        elif call.name in _MMAPS and self._is_mapped_file(call):
            self.rows.skip("mapped into memory")
        else:
            self._descriptors(call, call.ret)

    def _file(self, call: Call) -> OpenFile:
        """Return the file of the call's first argument. ``strace -y`` prints its path."""
        match = _DESCRIPTOR.match(call.args)
        if match is None:
            raise ValueError("no descriptor")
        number, files = int(match[1]), self._processes.of(call.pid).files
        known = files.get(number)
        if known is not None:
            return known
        path = match[2].decode("utf-8", "replace").partition("<")[0] if match[2] else f"descriptor {number}"
        found = OpenFile.named(path, None)
        if not match[2] and 0 <= number <= 2:
            found.on_disk = False
        files[number] = found
        return found

    def _at_offset(self, call: Call, op: int, place: int) -> None:
        offset = int(call.args.rsplit(b",", place)[-place].strip(), 0)
        if offset == -1:  # preadv2: at the position
            self._at_position(call, op)
        else:
            self._count(call, op, self._file(call), offset)

    def _at_position(self, call: Call, op: int) -> None:
        file = self._file(call)
        if file.on_disk and file.position is None:
            self.rows.skip("place not known: the file was opened before the trace began")
            return
        self._count(call, op, file, file.position or 0)
        if file.position is not None:
            file.position += call.ret or 0

    def _count(self, call: Call, op: int, file: OpenFile, offset: int) -> None:
        if not file.on_disk:
            self.rows.skip("not a file on a disk")
        elif not call.ret:
            self.rows.skip("end of file" if op == OP_READ else "zero length")
        else:
            self._untimed += call.begun_ns is None
            self._without_latency += call.latency_ns is None
            latency_ns = UNKNOWN_LATENCY if call.latency_ns is None else call.latency_ns
            self.rows.add(call.begun_ns or 0, op, offset // LBN_NBYTES, call.ret, file.path, latency_ns)

    def _open(self, call: Call, descriptor: int) -> None:
        named = _STRING.search(call.args)
        answered = _ANSWER_PATH.match(call.tail)
        path = answered[1] if answered else named[1] if named else b"?"
        self._processes.of(call.pid).files[descriptor] = OpenFile.named(
            path.decode("utf-8", "replace"), closed_by_exec=b"O_CLOEXEC" in call.args
        )

    def _seek(self, call: Call, position: int) -> None:
        if call.name == b"_llseek":  # _llseek(fd, high, low, [result], whence) = 0
            result = re.search(rb"\[(\d+)\]", call.args)
            position = int(result[1]) if result else position
        self._file(call).position = position

    def _is_mapped_file(self, call: Call) -> bool:
        words = call.args.split(b",")
        return len(words) >= 6 and re.match(rb"^\s*\d+(<|$)", words[4]) is not None

    def _descriptors(self, call: Call, ret: int) -> None:
        files = self._processes.of(call.pid).files
        match = _DESCRIPTOR.match(call.args)
        number = int(match[1]) if match else -1
        if call.name == b"close":
            files.pop(number, None)
        elif call.name in _DUPS or (call.name == b"fcntl" and b"F_DUPFD" in call.args):
            files[ret] = self._file(call)
        elif call.name in _FORKS:
            self._processes.begun(call.pid, ret, shares=b"CLONE_FILES" in call.args)
        elif call.name in _NOT_FILES:
            files[ret] = OpenFile("", None, on_disk=False)
        elif call.name in (b"pipe", b"pipe2", b"socketpair"):
            for end in re.findall(rb"\d+", call.args.partition(b"[")[2].partition(b"]")[0])[:2]:
                files[int(end[:9])] = OpenFile("", None, on_disk=False)
        elif call.name in (b"execve", b"execveat"):
            for closed in [n for n, file in files.items() if file.closed_by_exec]:
                del files[closed]
