"""How fast traces become profiles, against the programs and the library that people use, in the same run.

Run with: .venv/bin/python benchmarks/trace_speed.py [--quick] [NAME...]

Everything runs on one core (``taskset``); the rates are per second of processor time, which a busy machine changes
less than the time on the wall. Only where "wall" stands it is the time on the wall, of cephfit on all cores and of
the peers, which use one. cephfit and pandas are measured without their imports and, for cephfit, once the
compiled loops are loaded; both read the file as often as ``--repeats`` says, and the best one counts. blkparse and
btt read the beginning of the file (``--peer-events``), because all of it takes them minutes.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import trace_files

BLKPARSE_LINE = "  8,0    0 {i:8d} {seconds:>15s}    99  Q {op:>3s} {lbn} + {n_sectors} [fio]\n"
PERF_LINE = (
    "  fio  6012 [001] {seconds:>15s}: block:block_rq_issue: 8,0 {op} {nbytes} () {lbn} + {n_sectors} [fio]\n"
)


@dataclass(frozen=True, slots=True)
class Lines:
    """A text format.

    Attributes:
        line, ops: as ``trace_files.write_lines`` takes them.
        separator: for pandas, as a regular expression; pyarrow knows single characters only.
        numbers, words: columns that a profile needs; none: pandas cannot read such lines.
        columns: of cephfit's ``--columns``, if it is to be told so.
    """

    line: str
    ops: tuple[str, str]
    separator: str = ","
    numbers: tuple[int, ...] = ()
    words: tuple[int, ...] = ()
    columns: str = ""


LINES = {
    "vscsi-csv": Lines("{i},{nbytes},1,{op},{lbn},{time_us}\n", ("read", "write"), ",", (1, 4, 5), (3,)),
    "msr": Lines(
        "{filetime},usr,{disk},{op},{offset},{nbytes},{latency}\n", ("Read", "Write"), ",", (0, 2, 4, 5, 6), (1, 3)
    ),
    "alibaba": Lines("{disk},{op},{offset},{nbytes},{time_us}\n", ("R", "W"), ",", (0, 2, 3, 4), (1,)),
    "blkparse-text": Lines(BLKPARSE_LINE, ("R", "W"), r"\s+", (7, 9), (0, 3, 5, 6)),
    "columns": Lines(
        "{seconds}\t{op}\t{lbn}\t{n_sectors}\n",
        ("rd", "wr"),
        "\t",
        (2, 3),
        (1,),
        "time:s,op,offset:lbn,length:lbn,sep=tab",
    ),
    "block-events": Lines(PERF_LINE, ("R", "W")),
}


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of processor time, and on the wall."""

    processor: float
    wall: float

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.processor + other.processor, self.wall + other.wall)


def cephfit_seconds(path: Path, repeats: int, full: bool, columns: str) -> Spent:
    """The best of several profiles; runs in a process of its own."""
    from cephfit.traces import profile_files
    from cephfit.traces.read_options import ReadOptions
    from cephfit.traces.readers.block_layer import Action

    spent = []
    action = Action.ISSUE if path.stem == "block-events" else Action.QUEUE
    for _ in range(repeats + 1):  # the first one loads the compiled loops
        started = time.process_time(), time.perf_counter()
        profile_files([path], full=full, action=action, options=ReadOptions(columns=columns or None))
        spent.append(Spent(time.process_time() - started[0], time.perf_counter() - started[1]))
    return Spent(min(s.processor for s in spent), min(s.wall for s in spent))


def peer_seconds(peer: str, path: Path, repeats: int, name: str) -> Spent:
    """The best of several readings of the columns that a profile needs; in a process of its own."""
    readings = PEERS[peer][1](path, LINES[name])
    spent = []
    for _ in range(repeats):
        for read in readings:
            started = time.process_time(), time.perf_counter()
            read()
            spent.append(Spent(time.process_time() - started[0], time.perf_counter() - started[1]))
    return Spent(min(s.processor for s in spent), min(s.wall for s in spent))


def with_pandas(path: Path, lines: Lines) -> list[Callable[[], object]]:
    """Its C engine, in the two ways of which now one and now the other is faster."""
    import pandas

    columns = [*lines.numbers, *lines.words]

    def read(low_memory: bool, words: str | None) -> object:
        types = dict.fromkeys(lines.numbers, "int64") | (dict.fromkeys(lines.words, words) if words else {})
        return pandas.read_csv(
            path,
            sep=lines.separator,
            header=None,
            usecols=columns if lines.columns == "" else None,
            dtype=types,
            engine="c",
            low_memory=low_memory,
            skipinitialspace=True,
        )

    return [lambda: read(True, None), lambda: read(False, "category")]


def with_plain_pandas(path: Path, lines: Lines) -> list[Callable[[], object]]:
    """The call that most people write: it is told no types and finds them itself."""
    import pandas

    columns = sorted((*lines.numbers, *lines.words)) if lines.columns == "" else None
    return [lambda: pandas.read_csv(path, sep=lines.separator, header=None, usecols=columns)]


def with_pyarrow(path: Path, lines: Lines) -> list[Callable[[], object]]:
    """Its own reader, which uses all cores."""
    from pyarrow import csv

    columns = [f"f{i}" for i in sorted((*lines.numbers, *lines.words))]
    return [
        lambda: csv.read_csv(
            path,
            csv.ReadOptions(autogenerate_column_names=True),
            csv.ParseOptions(delimiter=lines.separator),
            csv.ConvertOptions(include_columns=columns if lines.columns == "" else None),
        )
    ]


PEERS = {
    "pandas": ("pandas, told the types", with_pandas),
    "plain-pandas": ("pandas as called by most", with_plain_pandas),
    "pyarrow": ("pyarrow", with_pyarrow),
}
"""Libraries that read columns, how they are shown, and in which ways they read."""


def in_child(core: int | None, *arguments: str) -> Spent:
    """A measurement in a fresh process, on one core or (None) on all."""
    done = subprocess.run(
        [*(_on(core)), sys.executable, __file__, "--measure", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return Spent(*map(float, done.stdout.split()))


def _on(core: int | None) -> list[str]:
    return [] if core is None else ["taskset", "-c", str(core)]


def program_seconds(folder: Path, core: int, *argv: str) -> Spent:
    """Of a program that may leave files in ``folder``."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([*_on(core), *argv], check=True, capture_output=True, cwd=folder)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
    return Spent(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def show(name: str, n: int, spent: Spent, peers: dict[str, float]) -> None:
    """The rate of cephfit on one core beside those of its peers, by name."""
    rate = n / spent.processor
    print(f"{name:14s} {n:>10,d} events  {rate / 1e6:7.2f} M/s per core", flush=True)
    for peer, its_rate in peers.items():
        print(f"{'':14s} {peer:26s} {its_rate / 1e6:7.2f} M/s   cephfit is {rate / its_rate:.1f} times as fast")


def blktrace(events: tuple[trace_files.Event, ...], name: str) -> Callable[[Path, int, int, int, int], None]:
    def measure(folder: Path, n: int, peer_events: int, repeats: int, core: int) -> None:
        path, few = folder / "full.blktrace.0", folder / "few.blktrace.0"
        n = trace_files.write_blktrace(path, n, events)
        n_few = trace_files.write_blktrace(few, min(n, peer_events), events)
        dump = folder / "dump"
        base = ["blkparse", "-q", "-D", str(folder), "-i", "few"]
        peers = {
            "blkparse, text": program_seconds(folder, core, *base, "-o", "/dev/null"),
            "blkparse -O -d": program_seconds(folder, core, *base, "-O", "-d", str(dump)),
            "btt": program_seconds(folder, core, "btt", "-i", str(dump), "-o", str(folder / "btt")),
        }
        peers["blkparse -O -d, then btt"] = peers["blkparse -O -d"] + peers["btt"]
        show(
            name,
            n,
            in_child(core, str(path), str(repeats)),
            {peer: n_few / spent.processor for peer, spent in peers.items()},
        )
        wall = n / in_child(None, str(path), str(repeats)).wall
        print(f"{'':14s} on all cores, wall {wall / 1e6:15.2f} M/s")
        for peer, spent in peers.items():
            rate = n_few / spent.wall
            print(f"{'':14s} {peer:26s} {rate / 1e6:7.2f} M/s   cephfit is {wall / rate:.1f} times as fast, wall")

    return measure


def vscsi_binary(version: int) -> Callable[[Path, int, int, int, int], None]:
    def measure(folder: Path, n: int, peer_events: int, repeats: int, core: int) -> None:
        path = folder / "trace.vscsi"
        n = trace_files.write_vscsi_binary(path, n, version)
        show(f"vscsi-{version}", n, in_child(core, str(path), str(repeats)), {})
        wall = n / in_child(None, str(path), str(repeats)).wall
        print(f"{'':14s} on all cores, wall {wall / 1e6:15.2f} M/s")

    return measure


def description(folder: Path, n: int, peer_events: int, repeats: int, core: int) -> None:
    """The full description; no program is known that makes one."""
    path = folder / "full.blktrace.0"
    n = trace_files.write_blktrace(path, n // 4, trace_files.ALL)
    show("description", n, in_child(core, str(path), str(repeats), "--full"), {})


def text(name: str) -> Callable[[Path, int, int, int, int], None]:
    def measure(folder: Path, n: int, peer_events: int, repeats: int, core: int) -> None:
        lines = LINES[name]
        path = folder / f"{name}.txt"
        trace_files.write_lines(path, n, lines.line, ops=lines.ops)
        options = ["--columns", lines.columns] if lines.columns else []
        peers = []
        if lines.numbers:
            peers += ["pandas", "plain-pandas"] if len(lines.separator) > 1 else list(PEERS)
        on_core = {PEERS[p][0]: in_child(core, str(path), str(repeats), f"--{p}", name) for p in peers}
        show(
            name,
            n,
            in_child(core, str(path), str(repeats), *options),
            {peer: n / spent.processor for peer, spent in on_core.items()},
        )
        on_all = {PEERS[p][0]: in_child(None, str(path), str(repeats), f"--{p}", name) for p in peers}
        wall = n / in_child(None, str(path), str(repeats), *options).wall
        print(f"{'':14s} on all cores, wall {wall / 1e6:15.2f} M/s")
        for peer, spent in on_all.items():
            rate = n / spent.wall
            print(f"{'':14s} {peer:26s} {rate / 1e6:7.2f} M/s   cephfit is {wall / rate:.1f} times as fast, wall")

    return measure


BENCHMARKS = {
    "blktrace": blktrace(trace_files.ALL, "blktrace"),
    "blktrace-qdc": blktrace(trace_files.FEWEST, "blktrace, QDC"),
    "vscsi-1": vscsi_binary(1),
    "vscsi-2": vscsi_binary(2),
    "description": description,
} | {name: text(name) for name in LINES}


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        path, repeats, *more = sys.argv[2:]
        if more and more[0].removeprefix("--") in PEERS:
            spent = peer_seconds(more[0].removeprefix("--"), Path(path), int(repeats), more[1])
        else:
            columns = more[1] if more[:1] == ["--columns"] else ""
            spent = cephfit_seconds(Path(path), int(repeats), more == ["--full"], columns)
        print(spent.processor, spent.wall)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)} [all]")
    parser.add_argument("--quick", action="store_true", help="300,000 events: to see that it runs")
    parser.add_argument("--events", type=int, default=12_000_000, help="in each file [12,000,000]")
    parser.add_argument(
        "--peer-events", type=int, default=1_500_000, help="that blkparse and btt read [1,500,000]"
    )
    parser.add_argument("--repeats", type=int, default=3, help="readings of which the best counts [3]")
    parser.add_argument("--core", type=int, default=1, help="the core that everything runs on [1]")
    chosen = parser.parse_args()
    n = 300_000 if chosen.quick else chosen.events
    for name in chosen.names or BENCHMARKS:
        with tempfile.TemporaryDirectory(prefix="cephfit-benchmark-") as folder:
            BENCHMARKS[name](Path(folder), n, min(n, chosen.peer_events), chosen.repeats, chosen.core)


if __name__ == "__main__":
    main()
