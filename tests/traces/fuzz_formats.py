"""Fuzzing of every trace format: no traceback but CephfitError, no hang, no memory blow-up.

    python tests/traces/fuzz_formats.py [--inputs N] [--seconds S] [--seed N] [--one-in-parts N] [FAMILY ...]
    python tests/traces/fuzz_formats.py --atheris FAMILY [libFuzzer's own options]

Without ``--atheris``, inputs are whole traces with damage: bytes and numbers changed, parts cut out, repeated or
moved, other formats appended. With it, atheris (coverage-guided) generates them. Inputs are read as the format of
the family, and one in eight with the format detected. Of formats that are read in parts, one in eight is also a
file, which must give the same in small parts as in one. These take most of the time; ``--one-in-parts`` reduces
their number. ``test_fuzz_formats.py`` runs a small part of it.
"""

import argparse
import importlib
import random
import re
import resource
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

if "--atheris" in sys.argv:
    import atheris  # type: ignore[import-not-found]

    # Not what Numba compiles: it does not know the instructions that measure the coverage.
    _ROOT = Path(__file__).parents[2]
    _COMPILED = [
        ".".join(("cephfit", *f.relative_to(_ROOT).with_suffix("").parts))
        for f in (_ROOT / "traces").rglob("*.py")
        if "compiled" in f.read_text("utf-8")
    ]
    with atheris.instrument_imports(include=["cephfit.traces"], exclude=_COMPILED):
        importlib.import_module("cephfit.traces.formats")

import pytest
from test_block_ops import text_of
from test_formats import WHOLE
from test_losses import BIOSNOOP, LOSSES
from test_more_formats import BIOSNOOP_LIBBPF, GOLDEN, ORACLE, QEMU_SIMPLE, TRACE_CMD, rbd_replay
from test_requeues import BLKPARSE_LINE, TRACEPOINT, as_text, given_back
from trace_maker import packed

from cephfit.core.errors import CephfitError, InputError
from cephfit.core.values.cells import Op
from cephfit.traces import formats, profile_files
from cephfit.traces.counting import shares
from cephfit.traces.description.recording import PartialProfile
from cephfit.traces.readers import vscsi_histogram
from cephfit.traces.readers.blktrace import blktrace_joining, blktrace_parts
from cephfit.traces.readers.blktrace.blktrace_reader import BlktraceReader
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.readers.reader import PartReader
from cephfit.traces.readers.vscsi_trace import VscsiBinaryReader
from cephfit.traces.recordings import ReadOptions
from cephfit.traces.stream import HEAD_NBYTES, TraceStream

NO_OPTIONS = ReadOptions()

HANG_SECONDS = 60.0
"""CPU time of one input. An input of some KB takes milliseconds, but the first use of a loop compiles it for
seconds."""

ONE_IN_PARTS = 8
"""For formats that are read in parts, one of this many inputs is read in parts."""

LONG_NBYTES = 2000
"""Length of a trace that gives several parts."""

COLUMNS = {
    "columns": ("time:us,disk,op,offset:bytes,length:bytes,latency:us", b"1,a,R,0,4096,5\n2,b,W,4096,512,\n"),
    "columns-quoted": (
        "disk,time:us,op,offset,length,latency:us",
        b'Disk,Time,Op,Offset,Size,Took\n"a, b",1,"Read",0x0000001000,"4,096",5\n"c",2,W,4096,0x200,"1,250.5"\n',
    ),
    "columns-space": ("time,op:0/1,offset:lbn,length=4096,sep=space", b"1.5 0 8\n2.5 1 16\n"),
}
BLKPARSE = {"blkparse-f": ("%T.%t,%d,%a,%S,%n,%C\\n", b"0.5,R,Q,8,16,a\n0.7,R,C,8,16,\n1.5,W,Q,24,128,b,c\n")}

_NUMBER = re.compile(rb"\d+")
_NUMBERS = [
    b"0",
    b"-1",
    b"1",
    b"65536",
    b"4294967295",
    b"4294967296",
    b"9223372036854775807",
    b"18446744073709551615",
]
_NUMBERS += [b"9" * 30, b"9" * 5000, b"1e9", b"0x7fffffffffffffff", b"3.5", b"", b"nan", b"\xc2\xb2"]
_WORDS = [
    b"\n",
    b"\r\n",
    b" ",
    b" " * 3000,
    b",",
    b",,,,",
    b"\0",
    b"\xff",
    b'"',
    b"(",
    b")",
    b"<",
    b"W",
    b"R",
    b"FN",
    b"-",
]
_WORDS += [
    b" = ",
    b" <unfinished ...>",
    b"<... read resumed>",
    b"[1]",
    b"x" * 3000,
    b"\n" * 50,
    b"(" * 500,
    b"[1] " * 300,
]


class HangError(Exception):
    """An input took too long."""


class MemoryStream(TraceStream):
    """A trace that is already in memory, so that a fuzzer needs no files."""

    def __init__(self, content: bytes) -> None:
        self.path, self.name, self.offset = Path("fuzzed"), "fuzzed", 0
        self._ahead = content

    def close(self) -> None:
        return

    def head(self) -> bytes:
        return self._ahead[:HEAD_NBYTES]

    def consumed(self) -> int:
        return self.offset

    def readinto(self, buffer: memoryview) -> int:
        block = self.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def _read_fully(self, nbytes: int) -> bytes:
        return b""


@dataclass(frozen=True)
class Family:
    """A format and whole traces of it."""

    name: str
    seeds: tuple[bytes, ...]
    format_name: str
    options: ReadOptions = NO_OPTIONS

    @property
    def in_parts(self) -> bool:
        """Whether files of the format are read in parts."""
        return any(
            isinstance(reader, (BlktraceReader, PartReader, VscsiBinaryReader))
            for reader in formats.readers(Action.QUEUE, self.options)
            if reader.name == self.format_name
        )

    def with_longer_seeds(self) -> "Family":
        """Return whole traces, including some that give several parts."""
        return replace(self, seeds=(*self.seeds, *(seed * (2 + LONG_NBYTES // len(seed)) for seed in self.seeds)))


def families() -> dict[str, Family]:
    seeds: dict[str, list[bytes]] = {}
    for name, content in WHOLE.items():
        seeds.setdefault(name.removesuffix("-8").removesuffix("-2"), []).append(content)
    seeds["blktrace"] += [packed(given_back(9)), packed(given_back(9), version=8)]
    seeds["blkparse"].append(as_text(given_back(9), BLKPARSE_LINE).encode())
    seeds["block-events"].append(as_text(given_back(9), TRACEPOINT).encode())
    for name in ("blkparse", "block-events", "biosnoop"):
        seeds[name].append(text_of(name).encode())
    for text, _ in LOSSES:
        name = "biosnoop" if text.startswith(BIOSNOOP) else "blkparse" if "Skips" in text else "block-events"
        seeds[name].append(text.encode())
    seeds["biosnoop"].append(BIOSNOOP_LIBBPF.encode())
    seeds["block-events"].append(TRACE_CMD.encode())
    # Text of a block layer's events is read in parts as long as no completion is in it.
    seeds["blkparse"].append(_without(b" C ", seeds["blkparse"][0]))
    seeds["block-events"].append(_without(b"_complete", seeds["block-events"][0]))
    seeds["qemu"] += [QEMU_SIMPLE.encode(), (GOLDEN / "qemu-io.txt").read_bytes()]
    seeds["rbd-replay"].append(rbd_replay(">"))
    seeds["strace"] += [(GOLDEN / name).read_bytes()[-3000:] for name in ("st_tt.txt", "st_ttt.txt", "st_y.txt")]
    found = {name: Family(name, tuple(contents), name) for name, contents in seeds.items()}
    op = ReadOptions(assume_op=Op.READ)
    found["oracle-general"] = Family("oracle-general", (ORACLE,), "oracle-general", op)
    for name, (columns, content) in COLUMNS.items():
        found[name] = Family(name, (content,), "columns", ReadOptions(columns=columns))
    for name, (layout, content) in BLKPARSE.items():
        found[name] = Family(name, (content,), "blkparse-f", ReadOptions(blkparse_format=layout))
    return {name: family.with_longer_seeds() if family.in_parts else family for name, family in found.items()}


def _without(word: bytes, text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines(keepends=True) if word not in line)


class Target:
    """Reads inputs as the format of one family."""

    def __init__(self, family: Family, one_in_parts: int = ONE_IN_PARTS) -> None:
        self.family = family
        self.n_read = self.n_refused = self.n_in_parts = 0
        self._n = 0
        self._in_parts = 1 / one_in_parts if family.in_parts else 0.0
        self._rng = random.Random(family.name)

    def __call__(self, content: bytes) -> None:
        """Read an input.

        Raises:
            Exception: any error that must not occur.
        """
        self._n += 1
        self.n_read += 1
        if self._rng.random() < self._in_parts:
            self.n_in_parts += 1
            compare_parts(self.family, content, self._rng)
        action = Action.ISSUE if self._n % 2 else Action.QUEUE
        try:
            stream = MemoryStream(content)
            name = self.family.format_name
            if self._n % 8 == 0:
                name = formats.format_of(stream)
            if name == formats.HISTOGRAM:
                vscsi_histogram.profiles_of_histograms([stream], name="fuzzed")
                return
            reader = next(r for r in formats.readers(action, self.family.options) if r.name == name)
            total = PartialProfile()
            for batch in reader.read_together([stream]):
                total = total.followed_by(PartialProfile.of(batch)) if len(batch) else total
        except CephfitError as error:
            assert isinstance(error, InputError), error
            assert "fuzzed" in error.where, f"it names no position: {error}"
            assert error.remedy, f"it names no remedy: {error}"
            self.n_refused += 1


def compare_parts(family: Family, content: bytes, rng: random.Random) -> None:
    """Read an input from a file, in small parts and as a whole.

    Raises:
        AssertionError: the two differ.
    """
    action, full = rng.choice(list(Action)), rng.random() < 0.2
    part_nbytes = max(30, len(content) // rng.randrange(2, 12))
    n_head, first_block = rng.choice((2, 1 << 15)), rng.choice((300, 1000))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "fuzzed"
        file.write_bytes(content)
        whole = _told(file, family, action, full)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shares, "PART_NBYTES", part_nbytes)
            patch.setattr(shares, "N_HEAD", n_head)
            patch.setattr(blktrace_parts, "PART_NBYTES", part_nbytes)
            patch.setattr(blktrace_parts, "FIRST_BLOCKS", (first_block,))
            patch.setattr(blktrace_joining, "n_cores", lambda: 2)
            in_parts = _told(file, family, action, full)
    if in_parts != whole:
        lines = unified_diff(whole.splitlines(), in_parts.splitlines(), "whole", "in parts", n=0, lineterm="")
        raise AssertionError(
            "\n".join([f"{action}, {full=}, {part_nbytes=}, {n_head=}, {first_block=}:", *islice(lines, 20)])
        )


def _told(file: Path, family: Family, action: Action, full: bool) -> str:
    """Return the profile of a file, or the reason why there is none."""
    try:
        return profile_files(
            [file], format_name=family.format_name, action=action, full=full, options=family.options
        ).dumps()
    except InputError as error:
        assert "fuzzed" in str(error), f"it names no position: {error}"
        return str(error)


def damaged(seeds: tuple[bytes, ...], others: list[bytes], rng: random.Random) -> bytes:
    """Return a whole trace with some damage."""
    content = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((0, 1, 1, 2, 3, 6))):
        if not content:
            break
        i = rng.randrange(len(content))
        j = min(len(content), i + rng.choice((1, 2, 4, 8, 30, 200)))
        match rng.randrange(9):
            case 0:
                content[i] = rng.randrange(256)
            case 1:
                content[i] ^= 1 << rng.randrange(8)
            case 2:
                del content[i:j]
            case 3:
                content[i:i] = content[i:j] * rng.choice((1, 2, 20))
            case 4:
                content[i:i] = rng.choice(_WORDS)
            case 5:
                content[i:j] = rng.randbytes(j - i)
            case 6:
                numbers = list(_NUMBER.finditer(bytes(content[i : i + 400])))
                if numbers:
                    chosen = rng.choice(numbers)
                    content[i + chosen.start() : i + chosen.end()] = rng.choice(_NUMBERS)
            case 7:
                content = content[:i]
            case _:
                k = rng.randrange(len(content))
                content[i:j] = content[k : k + j - i]
    if rng.random() < 0.08:
        other = rng.choice(others)
        content += other[rng.randrange(len(other)) if rng.random() < 0.5 else 0 :]
    return bytes(content)


def inputs(family: Family, seed: int) -> Iterator[bytes]:
    """Yield damaged traces without end, the same for the same seed."""
    rng = random.Random(f"{family.name} {seed}")
    others = list(WHOLE.values())
    while True:
        yield damaged(family.seeds, others, rng)


def fuzz(
    family: Family, *, n: int, seconds: float, seed: int, one_in_parts: int = ONE_IN_PARTS
) -> tuple[Target, float]:
    """Read up to ``n`` inputs in up to ``seconds``; return what was read, and the slowest input's CPU seconds.

    CPU time, as for hangs: on a busy machine, the first input waits seconds for the compilation of the loops.

    Raises:
        AssertionError: naming the input that was not refused clearly.
    """
    target, slowest, until = Target(family, one_in_parts), 0.0, time.monotonic() + seconds

    def too_long(_signal: int, _frame: FrameType | None) -> None:
        raise HangError(f"longer than {HANG_SECONDS:g} s")

    before = signal.signal(signal.SIGPROF, too_long)
    try:
        for content in inputs(family, seed):
            begun = time.process_time()
            if target.n_read >= n or time.monotonic() >= until:
                break
            signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
            try:
                target(content)
            except Exception as error:
                signal.setitimer(signal.ITIMER_PROF, 0)
                place = Path(f"fuzz-{family.name}-{target.n_read}")
                place.write_bytes(content)
                raise AssertionError(
                    f"{family.name}: {type(error).__name__}: {error}; input in {place}"
                ) from error
            signal.setitimer(signal.ITIMER_PROF, 0)
            slowest = max(slowest, time.process_time() - begun)
    finally:
        signal.signal(signal.SIGPROF, before)
    return target, slowest


def _with_atheris(family: Family, arguments: list[str]) -> None:
    target, rng, others = Target(family), random.Random(1), list(WHOLE.values())

    def one(content: bytes) -> None:
        target(content or damaged(family.seeds, others, rng))

    corpus = Path(f"corpus-{family.name}")
    corpus.mkdir(exist_ok=True)
    for i, seed in enumerate(family.seeds):
        (corpus / f"seed-{i}").write_bytes(seed)
    atheris.Setup([sys.argv[0], str(corpus), *arguments], one)
    atheris.Fuzz()


def main() -> int:
    known = families()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", nargs="*", help=f"of: {', '.join(known)} [default: all]")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each family")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one-in-parts", type=int, default=ONE_IN_PARTS, metavar="N")
    parser.add_argument("--atheris", action="store_true")
    asked, rest = parser.parse_known_args()
    if asked.atheris:
        _with_atheris(known[asked.family[0]], rest)
        return 0
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    failed = 0
    for name in asked.family or known:
        begun: Any = time.monotonic()
        try:
            target, slowest = fuzz(
                known[name],
                n=asked.inputs,
                seconds=asked.seconds,
                seed=asked.seed,
                one_in_parts=asked.one_in_parts,
            )
        except AssertionError as error:
            print(f"{name:16} FAILED {error}", flush=True)
            failed += 1
            continue
        rate = target.n_read / (time.monotonic() - begun)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(
            f"{name:16} {target.n_read:9} inputs, {target.n_refused:9} refused, {target.n_in_parts:9} in parts, "
            f"slowest {slowest:6.3f} s, {rate:6.0f} a second, peak of the process {peak} MiB",
            flush=True,
        )
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
