"""One cluster for two tenants, or one cluster for each: the same disks, loaded at the same time.

Three labs are up: `--one` with the disks of both halves, and the two `--half`. Each tenant has an image that fio
opens through librbd. In every round each cell runs with both tenants loaded and with only the first, on the one
cluster and on the halves, in shuffled order; the tenants' fio processes start together. PGs per OSD are equal.

    cephfit lab up --name one --hosts 4
    cephfit lab up --name half-a
    cephfit lab up --name half-b
    .venv/bin/python benchmarks/two_clusters.py --one one --half half-a half-b -o runs.csv
    .venv/bin/python benchmarks/two_clusters.py --table runs.csv
"""

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from cephfit.lab.cluster import Lab

CELLS = (("4K", "randread"), ("4K", "randwrite"), ("1M", "read"), ("1M", "write"))
DEPTH = {"4K": 16, "1M": 4}
POOL, VOLUME_NBYTES = "tenants", 256 << 20
PGS_PER_HOST = 16
RUN_SECONDS, RAMP_SECONDS = 3, 1
PLACEMENTS = ("one", "split")
LOADS = {"both": (0, 1), "first": (0,)}
"""Tenants that are loaded, by name of the load."""
COLUMNS = ("round", "cell", "load", "placement", "tenant", "iops")
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Ratio:
    """The split clusters' rate over that of the one cluster.

    Attributes:
        one: geometric mean on the one cluster, in accesses per second.
        split: likewise on the two clusters.
        low, high: 95 % interval of ``split / one``, from the paired rounds.
    """

    one: float
    split: float
    low: float
    high: float

    @property
    def text(self) -> str:
        return f"{self.one:.0f} | {self.split:.0f} | {self.split / self.one:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True, slots=True)
class Row:
    """A cell under a load: the rate of all loaded tenants together, and of the slower one in each round."""

    cell: str
    load: str
    n_rounds: int
    total: Ratio
    worse: Ratio


def rows_of(runs: Sequence[Mapping[str, str]]) -> list[Row]:
    """Compare the placements in each cell and load.

    Args:
        runs: one mapping of ``COLUMNS`` for each tenant and run; a round counts if both placements are complete.

    Raises:
        ValueError: a cell has fewer than three complete rounds.
    """
    rates: dict[tuple[str, str], dict[str, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for run in runs:
        rates[run["cell"], run["load"]][run["round"]][run["placement"]].append(float(run["iops"]))
    rows = []
    for (cell, load), rounds in sorted(rates.items()):
        n_tenants = len(LOADS[load])
        whole = [r for r in rounds.values() if all(len(r[p]) == n_tenants for p in PLACEMENTS)]
        if len(whole) < 3:
            raise ValueError(f"{cell} under {load} has {len(whole)} complete rounds; 3 are needed")
        total, worse = (_ratio([[of(r[p]) for p in PLACEMENTS] for r in whole]) for of in (sum, min))
        rows.append(Row(cell, load, len(whole), total, worse))
    return rows


def _ratio(pairs: Sequence[Sequence[float]]) -> Ratio:
    """Return the ratio of paired rates by Student's t on the differences of their logarithms."""
    one, split = np.log(np.array(pairs)).T
    ends = stats.ttest_rel(split, one).confidence_interval(CONFIDENCE)
    return Ratio(*(float(np.exp(x)) for x in (one.mean(), split.mean(), ends.low, ends.high)))


def table_of(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    head = "| cell | loaded | all: one | all: split | ratio | slower: one | slower: split | ratio |"
    lines = [f"| {r.cell} | {r.load} | {r.total.text} | {r.worse.text} |" for r in rows]
    return "\n".join([head, "|---|---|---:|---:|---:|---:|---:|---:|", *lines])


@dataclass(frozen=True, slots=True)
class _Tenant:
    """An image on a lab."""

    lab: Lab
    image: str

    def start(self, size: str, pattern: str) -> subprocess.Popen[str]:
        argv = [
            "fio", "--name=run", "--ioengine=rbd", "--clientname=admin", f"--pool={POOL}",
            f"--rbdname={self.image}", f"--bs={size}", f"--rw={pattern}", f"--iodepth={DEPTH[size]}",
            "--direct=1", "--time_based",
            f"--runtime={RUN_SECONDS}s", f"--ramp_time={RAMP_SECONDS}s", "--randrepeat=0", "--output-format=json",
        ]  # fmt: skip
        return self._popen(argv)

    def fill(self) -> None:
        """Create the image and write all of it with data that cannot be compressed."""
        rbd = ["rbd", "--conf", str(self.lab.conf), "--pool", POOL]
        subprocess.run([*rbd, "create", self.image, "--size", f"{VOLUME_NBYTES >> 20}M"], check=True)
        argv = [
            "fio", "--name=fill", "--ioengine=rbd", "--clientname=admin", f"--pool={POOL}",
            f"--rbdname={self.image}", "--bs=4M", "--rw=write", "--iodepth=4", "--refill_buffers",
            "--output-format=json",
        ]  # fmt: skip
        with self.lab.full_speed():
            _rate(self._popen(argv), "write")

    def _popen(self, argv: Sequence[str]) -> subprocess.Popen[str]:
        environment = {**os.environ, "CEPH_CONF": str(self.lab.conf)}
        return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True)


def _rate(fio: subprocess.Popen[str], pattern: str) -> float:
    """Wait for fio; return its accesses per second."""
    output, _ = fio.communicate()
    if fio.returncode:
        sys.exit(f"fio failed with exit code {fio.returncode}: {output}")
    job = json.loads(output[output.index("{") :])["jobs"][0]
    return float(job["read" if "read" in pattern else "write"]["iops"])


def _ceph(lab: Lab, *arguments: str) -> None:
    subprocess.run(["ceph", "--conf", str(lab.conf), *arguments], check=True, stdout=subprocess.DEVNULL)


def _wait_healthy(lab: Lab) -> None:
    deadline = time.monotonic() + 300
    while (state := lab.status()).health != "HEALTH_OK" or set(state.pgs) != {"active+clean"}:
        if time.monotonic() > deadline:
            sys.exit(f"lab {lab.name} is not healthy: {state.health} {state.checks} {state.pgs}")
        time.sleep(1)


def measure(one: Lab, halves: Sequence[Lab], rounds: int, output: Path) -> None:
    """Create the pools and images, run all rounds, and delete the pools."""
    labs = (one, *halves)
    disks = {
        placement: sum(lab.spec.n_hosts for lab in of)
        for placement, of in zip(PLACEMENTS, ([one], halves), strict=True)
    }
    if disks["one"] != disks["split"] or any(lab.spec.limits != one.spec.limits for lab in labs):
        sys.exit(f"the hardware differs: {disks} disks of each class, or other limits of the disks")
    with ExitStack() as stack:
        for lab in labs:
            n_pgs = str(PGS_PER_HOST * lab.spec.n_hosts)
            stack.callback(_ceph, lab, "osd", "pool", "delete", POOL, POOL, "--yes-i-really-really-mean-it")
            _ceph(lab, "osd", "pool", "create", POOL, n_pgs, n_pgs, "replicated", "hdd")
            _ceph(lab, "osd", "pool", "application", "enable", POOL, "rbd")
        tenants = {
            "one": [_Tenant(one, "first"), _Tenant(one, "second")],
            "split": [_Tenant(lab, "only") for lab in halves],
        }
        for lab in labs:
            _wait_healthy(lab)
        for of in tenants.values():
            for tenant in of:
                tenant.fill()
        _run_rounds(tenants, labs, rounds, output)


def _run_rounds(tenants: Mapping[str, Sequence[_Tenant]], labs: Sequence[Lab], rounds: int, output: Path) -> None:
    shuffle = random.Random(2017)
    cases = [(cell, load, placement) for cell in CELLS for load in LOADS for placement in PLACEMENTS]
    with output.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(COLUMNS)
        for number in range(rounds):
            for lab in labs:
                _wait_healthy(lab)
            for (size, pattern), load, placement in shuffle.sample(cases, len(cases)):
                running = [(i, tenants[placement][i].start(size, pattern)) for i in LOADS[load]]
                for i, fio in running:
                    rate = _rate(fio, pattern)
                    table.writerow((number, f"{size}-{pattern}", load, placement, i, f"{rate:.3f}"))
            stream.flush()
            print(f"round {number + 1} of {rounds} at {time.strftime('%H:%M:%S')}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", metavar="LAB", help="lab with all disks")
    parser.add_argument("--half", nargs=2, metavar="LAB", help="labs with half of the disks each")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("-o", "--output", type=Path, help="CSV file for the runs")
    parser.add_argument("--table", type=Path, metavar="CSV", help="print the table of these runs")
    asked: Any = parser.parse_args()
    if asked.table is None:
        if not (asked.one and asked.half and asked.output):
            parser.error("give --one, --half and -o, or --table")
        measure(Lab.open(asked.one), [Lab.open(name) for name in asked.half], asked.rounds, asked.output)
    with (asked.table or asked.output).open(newline="") as stream:
        print(table_of(rows_of(list(csv.DictReader(stream)))))


if __name__ == "__main__":
    main()
