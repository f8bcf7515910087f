"""A store of a million samples: how long `runs list`, `map`, `report`, `compare` and `runs export` take.

    python benchmarks/large_store.py [N_SAMPLES [FOLDER]] [--runs N] [--only COMMAND] [--times N]

The store has 20 runs of one sweep on the simulated cluster: 20 cells, equal numbers of clients and rounds. The
rates are drawn with a scatter of 3 %; each sample has the percentiles and the evidence of a measured one. Then the
same with one run. A store in FOLDER is kept and used again: its second `report` also has the prediction. Times
are of whole processes, and memory is their peak. ``--runs 1 --only report --times 3`` measures the report of a
million samples in one run three times.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import insert

from cephfit.core.values.cells import CELLS
from cephfit.core.values.sample import INDEPENDENT_COUNT, Metrics, Run, Sample, SampleKey, State, counted
from cephfit.results.store import schema
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep

N_SAMPLES, N_RUNS = 1_000_000, 20
CONFIGURATIONS = ("A", *(f"replicas-{i}" for i in range(4, 8)))
CLIENTS, PERCENTILES = 10, (1.0, 5.0, 10.0, 50.0, 90.0, 95.0, 99.0, 99.9)
LOAD = {"iodepth": 4, "clients": CLIENTS, "read_pct": None, "rate_iops": None, "rate_nbytes_per_s": None}


def sweep_text(repeats: int) -> str:
    named = "".join(f"  {name}: {{pool: {{size: {i}}}}}\n" for i, name in enumerate(CONFIGURATIONS[1:], start=4))
    return (
        "schema_version: 1\nname: large\n"
        f"configurations:\n{named}"
        f"measurement: {{clients: {CLIENTS}, volume_size: 4G, run_seconds: 10, repeats: {repeats}, seed: 1}}\n"
    )


def samples_of(repeats: int, seed: int) -> Iterator[Sample]:
    """Every round of every configuration and cell on every client."""
    drawn = random.Random(seed)
    started = 1_795_000_000 * 10**9
    for repeat in range(repeats):
        for i, name in enumerate(CONFIGURATIONS):
            for cell in CELLS:
                for client in range(CLIENTS):
                    iops = 100 * (1 + i / 10) * drawn.lognormvariate(0, 0.03)
                    mean = 4e9 / iops
                    tails = {p: mean * (0.5 + p / 60) for p in PERCENTILES}
                    nbytes = iops * cell.size.benchmark_nbytes
                    metrics = Metrics(iops, nbytes, int(iops * 10), 10**10, mean, tails)
                    key = SampleKey(name, cell, f"c{client}", repeat)
                    window = 10 * nbytes * (1 + drawn.gauss(0, 0.001))
                    count = counted(
                        source="kernel", window_nbytes=window, total_nbytes=round(1.2 * window), allowed_nbytes=0
                    )
                    evidence = {"load": LOAD, INDEPENDENT_COUNT: count, "cache": "cold"}
                    yield Sample(key, State.OK, metrics, started, started + 10**10, "", evidence)
                started += 11 * 10**9


def create(path: Path, n_samples: int, n_runs: int) -> None:
    """Write the store, a transaction for each run."""
    repeats = n_samples // n_runs // (len(CONFIGURATIONS) * len(CELLS) * CLIENTS)
    text = sweep_text(repeats)
    digest = parse_sweep(text, file="large.yaml").digest
    with Store.open(path, create=True) as store:
        for number in range(n_runs):
            run_id = f"large-{number:03}"
            store.add_run(
                Run(run_id, "large", text, digest, "sim", 1, (1_795_000_000 + number) * 10**9, {"simulated": True})
            )
            rows = [{**schema.sample_row(s), "run_id": run_id} for s in samples_of(repeats, number)]
            with store._writing() as connection:
                connection.execute(insert(schema.samples), rows)
            store.finish_run(run_id)


def cost(folder: Path, *words: str) -> tuple[float, float, int]:
    """Return a command's seconds on the wall, processor seconds (user and kernel), and peak memory in MiB."""
    begun = time.monotonic()
    argv = [sys.executable, "-m", "cephfit.cli.main", *words]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(argv, cwd=folder, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise SystemExit(errors.read())
    return time.monotonic() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss >> 10


def measure(folder: Path, n_samples: int, n_runs: int, only: str | None, times: int) -> None:
    path = folder / f"large-{n_samples}-{n_runs}.sqlite"
    if not path.exists():
        create(path, n_samples, n_runs)
    size = path.stat().st_size >> 20
    print(f"\n{n_samples} samples in {n_runs} runs, {size} MiB\n")
    print("| command | seconds | processor seconds | MiB |\n|---|---|---|---|")
    store, newest = ("--store", path.name), f"large-{n_runs - 1:03}"
    pair = ("--run", "large-000", "--run", "large-001")
    for title, *words in (
        ("runs list", "runs", "list", *store),
        ("runs show", "runs", "show", "latest", *store),
        ("report", "report", *store, "--run", newest, "-o", "report.html"),
        ("map", "map", "example:pgbench", "--baselines", path.name, "--run", newest),
        ("report, with that prediction", "report", *store, "--run", newest, "-o", "mapped.html"),
        *([("compare", "compare", *store, *pair)] if n_runs > 1 else []),
        ("runs export", "runs", "export", "latest", *store, "-o", "samples.parquet"),
    ):
        for _ in range(times if only in (None, title) else 0):
            wall, used, mib = cost(folder, *words)
            print(f"| {title} | {wall:.1f} | {used:.1f} | {mib} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("n_samples", nargs="?", type=int, default=N_SAMPLES)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--runs", type=int, help="of the only store; both of them without it")
    parser.add_argument("--only", help="the only command to measure, by its title in the table")
    parser.add_argument("--times", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        for n_runs in [asked.runs] if asked.runs else [N_RUNS, 1]:
            measure(folder, asked.n_samples, n_runs, asked.only, asked.times)


if __name__ == "__main__":
    main()
