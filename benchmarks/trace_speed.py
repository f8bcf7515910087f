"""How fast traces become profiles, against the programs and the library that people use, in the same run.

Run with: .venv/bin/python benchmarks/trace_speed.py [--quick] [NAME...]

Everything runs on one core (``taskset``); the rates are per second of processor time, which a busy machine
changes less than the wall time. Only where marked "wall" it is the wall time, of cephfit on all
cores and of the peers, most of which use one. cephfit and pandas are measured without their imports and, for
cephfit, once the compiled loops are loaded. All read the file in turn, as often as ``--rounds`` says, and of each
the best reading counts: a neighbour on the same host can make a core half as quick for minutes, and would favour
whoever was not measured then. pandas reads large files in several threads from its version 3.1 on; ``--pandas``
names a Python that has an earlier one. blkparse and btt read the beginning of the file (``--peer-events``),
because the whole takes them minutes.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trace_files
import trace_peers
from readings import Spent, best, in_turn, spent_by
from trace_peers import LINES, PEERS


@dataclass(frozen=True, slots=True)
class Size:
    """Of a benchmark; as the options of the same names."""

    events: int
    peer_events: int
    rounds: int
    core: int
    pandas: Path | None


def cephfit_seconds(path: Path, full: bool, columns: str) -> Spent:
    """A profile; runs in a process of its own."""
    from cephfit.traces import profile_files
    from cephfit.traces.readers.block_events.block_layer import Action
    from cephfit.traces.recordings import ReadOptions

    action = Action.ISSUE if path.stem == "block-events" else Action.QUEUE

    def read() -> None:
        profile_files([path], full=full, action=action, options=ReadOptions(columns=columns or None))

    read()  # loads the compiled loops
    return best(spent_by(read) for _ in range(2))


def in_child(core: int | None, *arguments: str) -> Spent:
    """A profile in a fresh process, on one core or (None) on all."""
    return _measured(core, sys.executable, __file__, "--measure", *arguments)


def peer_in_child(core: int | None, python: Path, peer: str, path: Path, name: str) -> Spent:
    """A peer's reading in a fresh process of an interpreter that has it."""
    return _measured(core, str(python), trace_peers.__file__, peer, str(path), name)


def _measured(core: int | None, *argv: str) -> Spent:
    done = subprocess.run([*_on(core), *argv], check=True, capture_output=True, text=True)
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
    """The rate of cephfit on one core and those of its peers, by name."""
    rate = n / spent.processor
    print(f"{name:14s} {n:>10,d} events  {rate / 1e6:7.2f} M/s per core", flush=True)
    for peer, its_rate in peers.items():
        print(f"{'':14s} {peer:33s} {its_rate / 1e6:7.2f} M/s   cephfit is {rate / its_rate:.1f} times as fast")


def show_wall(n: int, spent: Spent, peers: dict[str, float]) -> None:
    """The rate of cephfit on all cores and those of its peers, by wall time."""
    rate = n / spent.wall
    print(f"{'':14s} on all cores, wall {rate / 1e6:22.2f} M/s")
    for peer, its_rate in peers.items():
        print(
            f"{'':14s} {peer:33s} {its_rate / 1e6:7.2f} M/s   cephfit is {rate / its_rate:.1f} times as fast, wall"
        )


ONE_CORE, ALL_CORES = "cephfit on one core", "cephfit on all cores"


def blktrace(events: tuple[trace_files.Event, ...], name: str) -> Callable[[Path, Size], None]:
    def measure(folder: Path, size: Size) -> None:
        path, few = folder / "full.blktrace.0", folder / "few.blktrace.0"
        n = trace_files.write_blktrace(path, size.events, events)
        n_few = trace_files.write_blktrace(few, min(size.events, size.peer_events), events)
        dump = folder / "dump"
        base = ["blkparse", "-q", "-D", str(folder), "-i", "few"]
        run = partial(program_seconds, folder, size.core)
        spent = in_turn(
            size.rounds,
            {
                ONE_CORE: lambda: in_child(size.core, str(path)),
                ALL_CORES: lambda: in_child(None, str(path)),
                "blkparse, text": lambda: run(*base, "-o", "/dev/null"),
                "blkparse -d": lambda: run(*base, "-d", str(dump), "-o", "/dev/null"),
                "blkparse -O -d": lambda: run(*base, "-O", "-d", str(dump)),
                "btt": lambda: run("btt", "-i", str(dump), "-o", str(folder / "btt")),
            },
        )
        mine, on_all = spent.pop(ONE_CORE), spent.pop(ALL_CORES)
        # btt reads what blkparse wrote; its guide calls blkparse without -O, which leaves out the text
        spent["blkparse -d, then btt"] = spent["blkparse -d"] + spent["btt"]
        spent["blkparse -O -d, then btt"] = spent["blkparse -O -d"] + spent["btt"]
        show(name, n, mine, {peer: n_few / s.processor for peer, s in spent.items()})
        show_wall(n, on_all, {peer: n_few / s.wall for peer, s in spent.items()})

    return measure


def vscsi_binary(version: int) -> Callable[[Path, Size], None]:
    def measure(folder: Path, size: Size) -> None:
        path = folder / "trace.vscsi"
        n = trace_files.write_vscsi_binary(path, size.events, version)
        spent = in_turn(
            size.rounds,
            {
                ONE_CORE: lambda: in_child(size.core, str(path)),
                ALL_CORES: lambda: in_child(None, str(path)),
            },
        )
        show(f"vscsi-{version}", n, spent[ONE_CORE], {})
        show_wall(n, spent[ALL_CORES], {})

    return measure


def description(folder: Path, size: Size) -> None:
    """The full description; no program is known that makes one."""
    path = folder / "full.blktrace.0"
    n = trace_files.write_blktrace(path, size.events // 4, trace_files.ALL)
    spent = in_turn(size.rounds, {ONE_CORE: lambda: in_child(size.core, str(path), "--full")})
    show("description", n, spent[ONE_CORE], {})


def readers_of(lines: trace_peers.Lines) -> list[str]:
    """Who can read such lines: only pandas takes separators of several characters."""
    return ["pandas", "plain-pandas"] if len(lines.separator) > 1 else list(PEERS)


def text(name: str) -> Callable[[Path, Size], None]:
    def measure(folder: Path, size: Size) -> None:
        lines, n = LINES[name], size.events
        path = folder / f"{name}.txt"
        trace_files.write_lines(path, n, lines.line, ops=lines.ops)
        options = ["--columns", lines.columns] if lines.columns else []
        peers: dict[str, tuple[str, Path]] = {}
        if lines.numbers:
            peers = {PEERS[p][0]: (p, Path(sys.executable)) for p in readers_of(lines)}
        if lines.numbers and size.pandas:
            version = trace_peers.version_of(size.pandas)
            for p in ("pandas", "plain-pandas"):
                peers[PEERS[p][0].replace("pandas", f"pandas {version}")] = p, size.pandas
        measured: dict[str, Callable[[], Spent]] = {
            ONE_CORE: lambda: in_child(size.core, str(path), *options),
            ALL_CORES: lambda: in_child(None, str(path), *options),
        }
        for title, (p, python) in peers.items():
            measured[f"{title} on one core"] = partial(peer_in_child, size.core, python, p, path, name)
            measured[title] = partial(peer_in_child, None, python, p, path, name)
        spent = in_turn(size.rounds, measured)
        show(name, n, spent[ONE_CORE], {title: n / spent[f"{title} on one core"].processor for title in peers})
        show_wall(n, spent[ALL_CORES], {title: n / spent[title].wall for title in peers})

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
        path, *more = sys.argv[2:]
        columns = more[1] if more[:1] == ["--columns"] else ""
        spent = cephfit_seconds(Path(path), more == ["--full"], columns)
        print(spent.processor, spent.wall)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)} [all]")
    parser.add_argument("--quick", action="store_true", help="300,000 events: to see that it runs")
    parser.add_argument("--events", type=int, default=12_000_000, help="in each file [12,000,000]")
    parser.add_argument(
        "--peer-events", type=int, default=1_500_000, help="that blkparse and btt read [1,500,000]"
    )
    parser.add_argument("--rounds", type=int, default=3, help="readings of each, of which the best counts [3]")
    parser.add_argument("--core", type=int, default=1, help="the core that everything runs on [1]")
    parser.add_argument(
        "--pandas",
        type=Path,
        metavar="PYTHON",
        help="an interpreter with another pandas to measure as well",
    )
    chosen = parser.parse_args()
    n = 300_000 if chosen.quick else chosen.events
    for name in chosen.names or BENCHMARKS:
        size = Size(n, min(n, chosen.peer_events), chosen.rounds, chosen.core, chosen.pandas)
        with tempfile.TemporaryDirectory(prefix="cephfit-benchmark-") as folder:
            BENCHMARKS[name](Path(folder), size)


if __name__ == "__main__":
    main()
