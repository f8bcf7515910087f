"""How the work of profiling a trace is spread over threads: what two cores can give at most.

Run with: .venv/bin/python benchmarks/trace_threads.py [--events N] [NAME...]

On a busy machine the wall time shows little. Each thread's own processor time says what
share of all the busiest one does: two cores give at most one over that, and no more than 2. That one thread waits
for another is not seen.
"""

import argparse
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

import trace_files
from trace_peers import LINES

from cephfit.traces import profile_files
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.recordings import ReadOptions

BINARY = {
    "blktrace": lambda path, n: trace_files.write_blktrace(path, n, trace_files.ALL),
    "blktrace-qdc": lambda path, n: trace_files.write_blktrace(path, n, trace_files.FEWEST),
    "vscsi-1": lambda path, n: trace_files.write_vscsi_binary(path, n, 1),
    "vscsi-2": lambda path, n: trace_files.write_vscsi_binary(path, n, 2),
}


class Watch:
    """Adds up the processor seconds of the threads that end, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._run = threading.Thread.run

    def run(self, thread: threading.Thread) -> None:
        started = time.thread_time()
        self._run(thread)
        self.seconds[thread.name] += time.thread_time() - started


def measured(path: Path, name: str, repeats: int) -> dict[str, float]:
    """Processor seconds of each thread in the run that took the fewest."""
    options = ReadOptions(columns=LINES[name].columns or None if name in LINES else None)
    action = Action.ISSUE if name == "block-events" else Action.QUEUE
    found = []
    for _ in range(repeats + 1):  # the first one loads the compiled loops
        watch = Watch()
        threading.Thread.run = lambda thread, watch=watch: watch.run(thread)  # type: ignore[method-assign, misc]
        started = time.thread_time()
        try:
            profile_files([path], action=action, options=options)
        finally:
            threading.Thread.run = watch._run  # type: ignore[method-assign]
        watch.seconds["main"] = time.thread_time() - started
        found.append(watch.seconds)
    return min(found[1:], key=lambda seconds: sum(seconds.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join([*BINARY, *LINES])} [all]")
    parser.add_argument("--events", type=int, default=2_000_000, help="in each file [2,000,000]")
    parser.add_argument("--repeats", type=int, default=4, help="of which the one of the least work counts [4]")
    chosen = parser.parse_args()
    for name in chosen.names or [*BINARY, *LINES]:
        with tempfile.TemporaryDirectory(prefix="cephfit-benchmark-") as folder:
            path = Path(folder) / ("trace.blktrace.0" if name in BINARY else "trace.txt")
            n = chosen.events
            if name in BINARY:
                BINARY[name](path, n)
            else:
                trace_files.write_lines(path, n, LINES[name].line, ops=LINES[name].ops)
            seconds = measured(path, name, chosen.repeats)
        total, busiest = sum(seconds.values()), max(seconds.values())
        ordered = sorted(seconds.items(), key=lambda item: -item[1])
        threads = ", ".join(f"{thread} {s / n * 1e9:.1f}" for thread, s in ordered)
        print(
            f"{name:14s} {total / n * 1e9:6.1f} ns an event: {threads}; two cores give at most "
            f"{min(2.0, total / busiest):.2f} times",
            flush=True,
        )


if __name__ == "__main__":
    main()
