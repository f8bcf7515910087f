"""Client I/O under mClock's profiles and wpq, while the cluster recovers and while it does not.

A sweep cannot measure this: its samples are invalid during recovery. Here recovery is the subject. The lab has
three hosts or more, so that the other OSDs can take over the data of a failed one:

    cephfit lab up --name recovery --release reef --hosts 3
    .venv/bin/python benchmarks/mclock_recovery.py recovery -o runs.csv
    .venv/bin/python benchmarks/mclock_recovery.py --table runs.csv
    cephfit lab down --name recovery

In every round, each scheduler is set in shuffled order. fio reads and writes an image through librbd, first on the
whole cluster. Then one OSD of the class hdd is marked down and out, as after a failure, and the same cells are
measured while the others recover. A run counts only if recovery goes on from its begin to its end. Then the OSD
returns, and the disks recover without their limits until the cluster is whole again.

The lab's own limits of recovery are removed first: schedulers and recovery have the defaults of the release.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.core.units import MIB
from cephfit.lab.cluster import Lab

CELLS = (("4K", "randread"), ("4K", "randwrite"), ("1M", "write"))
DEPTH = {"4K": 16, "1M": 4}
POOL, IMAGE, OTHER_IMAGE = "recovery", "client", "other"
IMAGE_NBYTES = 256 * MIB
PG_NUM = 32
RUN_SECONDS, RAMP_SECONDS = 3, 1
REFERENCE = "wpq"
SCHEDULERS: Mapping[str, Mapping[str, str]] = {
    REFERENCE: {"osd_op_queue": "wpq"},
    **{
        profile: {"osd_op_queue": "mclock_scheduler", "osd_mclock_profile": profile}
        for profile in ("high_client_ops", "balanced", "high_recovery_ops")
    },
}
_OPTIONS = ("osd_op_queue", "osd_mclock_profile")
LIMITS_OF_THE_LAB = (
    "osd_recovery_sleep",
    "osd_recovery_sleep_hdd",
    "osd_recovery_sleep_hybrid",
    "osd_max_backfills",
    "osd_recovery_max_active",
    "osd_mclock_override_recovery_settings",
)
"""Options of recovery that a lab sets; without them, the release's defaults are in force."""
STATES = ("whole", "recovering")
COLUMNS = ("round", "scheduler", "state", "cell", "iops", "p99_ms", "recovery_mib_per_s")
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Ratio:
    """A rate over another, from paired rounds: geometric mean and 95 % interval; no interval for one round."""

    mean: float
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, rates: Sequence[float], references: Sequence[float]) -> "Ratio":
        """Use Student's t on the differences of the rates' logarithms."""
        logs = np.log(rates) - np.log(references)
        mean = float(np.exp(logs.mean()))
        if len(logs) < 2:
            return cls(mean, None)
        ends = stats.ttest_1samp(logs, 0).confidence_interval(CONFIDENCE)
        return cls(mean, (float(np.exp(ends.low)), float(np.exp(ends.high))))

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + (
            f" ({self.interval[0]:.2f} to {self.interval[1]:.2f})" if self.interval else ""
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One scheduler, cell and state of the cluster.

    Attributes:
        scheduler: key of ``SCHEDULERS``.
        cell: such as ``4K-randread``.
        state: of ``STATES``.
        n_rounds: with this run and the one of ``REFERENCE``.
        iops: geometric mean of the client's rate.
        p99_ms: median of the 99th percentiles of latency.
        against_reference: the client's rate over that of ``REFERENCE`` in the same state; None for itself.
        against_whole: the client's rate over that on the whole cluster; None there.
        recovery_mib_per_s: mean of what was recovered meanwhile.
    """

    scheduler: str
    cell: str
    state: str
    n_rounds: int
    iops: float
    p99_ms: float
    against_reference: Ratio | None
    against_whole: Ratio | None
    recovery_mib_per_s: float


def rows_of(runs: Sequence[Mapping[str, str]]) -> list[Row]:
    """Compare the schedulers in each cell and state; runs are paired by their rounds.

    Args:
        runs: one mapping of ``COLUMNS`` for each run that counts.
    """
    by_case: dict[tuple[str, str, str], dict[str, Mapping[str, str]]] = defaultdict(dict)
    for run in runs:
        by_case[run["cell"], run["state"], run["scheduler"]][run["round"]] = run
    rows = []
    order = sorted(by_case, key=lambda case: (case[0], STATES.index(case[1]), tuple(SCHEDULERS).index(case[2])))
    for cell, state, scheduler in order:
        rounds = by_case[cell, state, scheduler]
        own = list(rounds.values())
        rows.append(
            Row(
                scheduler,
                cell,
                state,
                len(rounds),
                float(stats.gmean([float(run["iops"]) for run in own])),
                float(np.median([float(run["p99_ms"]) for run in own])),
                None if scheduler == REFERENCE else _ratio(rounds, by_case.get((cell, state, REFERENCE), {})),
                None if state == "whole" else _ratio(rounds, by_case.get((cell, "whole", scheduler), {})),
                float(np.mean([float(run["recovery_mib_per_s"]) for run in own])),
            )
        )
    return rows


def _ratio(rounds: Mapping[str, Mapping[str, str]], others: Mapping[str, Mapping[str, str]]) -> Ratio | None:
    common = [number for number in rounds if number in others]
    if not common:
        return None
    return Ratio.of(*([float(of[number]["iops"]) for number in common] for of in (rounds, others)))


def table_of(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    head = (
        f"| cell | cluster | scheduler | rounds | IOPS | p99, ms | over {REFERENCE} | over the whole cluster "
        "| recovered, MiB/s |\n|---|---|---|---:|---:|---:|---|---|---:|"
    )
    lines = [
        f"| {r.cell} | {r.state} | {r.scheduler} | {r.n_rounds} | {r.iops:.0f} | {r.p99_ms:.1f} "
        f"| {r.against_reference or '-'} | {r.against_whole or '-'} "
        f"| {'-' if r.state == 'whole' else f'{r.recovery_mib_per_s:.1f}'} |"
        for r in rows
    ]
    return "\n".join([head, *lines])


@dataclass(frozen=True, slots=True)
class Run:
    """Result of one fio run."""

    iops: float
    p99_ms: float


class RecoveringLab:
    """A lab with a pool of its own, one of whose OSDs can be taken away.

    Args:
        lab: of three hosts or more.
        admin: of its cluster.
        other_nbytes: size of the image that gives recovery its work.
    """

    def __init__(self, lab: Lab, admin: RadosAdmin, other_nbytes: int) -> None:
        self._lab = lab
        self._admin = admin
        self._other_nbytes = other_nbytes
        self._osd = next(osd for osd in lab.osd_ids() if lab.device_class(osd) == "hdd")
        self._queue = ""

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Create the pool and its images, and remove the lab's limits of recovery; undo both at the end."""
        with ExitStack() as stack:
            stored = {
                entry["name"]: entry["value"]
                for entry in self._admin.command("config dump")
                if entry["section"] == "osd" and entry["name"] in (*LIMITS_OF_THE_LAB, *_OPTIONS)
            }
            stack.callback(self._lab.restart_osds)
            for name in (*LIMITS_OF_THE_LAB, *_OPTIONS):
                stack.callback(self._set, name, stored.get(name))
            for name in LIMITS_OF_THE_LAB:
                self._set(name, None)
            self._admin.command("osd pool create", pool=POOL, pg_num=PG_NUM, pgp_num=PG_NUM, rule="hdd")
            stack.callback(
                self._admin.command, "osd pool delete", pool=POOL, pool2=POOL, yes_i_really_really_mean_it=True
            )
            self._admin.command("osd pool application enable", pool=POOL, app="rbd")
            self.wait("is not active+clean", self.is_whole)
            self._fill(IMAGE, IMAGE_NBYTES)
            self._fill(OTHER_IMAGE, self._other_nbytes)
            yield

    def use(self, scheduler: str) -> None:
        """Set a scheduler; its queue needs restarted OSDs."""
        options = SCHEDULERS[scheduler]
        for name in _OPTIONS:
            self._set(name, options.get(name))
        if self._queue != options["osd_op_queue"]:
            self._lab.restart_osds()
            self._queue = options["osd_op_queue"]
        self.wait(f"does not run {scheduler}", lambda: self._runs(options), seconds=30)

    def _runs(self, options: Mapping[str, str]) -> bool:
        """Return whether all OSDs have these options: new values of the config store reach them with a delay."""
        return all(
            self._admin.tell(f"osd.{osd}", "config get", var=name)[name] == value
            for osd in self._lab.osd_ids()
            for name, value in options.items()
        )

    @contextmanager
    def recovering(self) -> Iterator[None]:
        """Take an OSD away and wait until recovery runs; bring it back at the end and wait for a whole cluster."""
        try:
            self._admin.command("osd add-noup", ids=[str(self._osd)])
            self._admin.command("osd out", ids=[str(self._osd)])
            self._admin.command("osd down", ids=[str(self._osd)])
            self.wait("does not recover", self.recovers)
            yield
        finally:
            self._admin.command("osd rm-noup", ids=[str(self._osd)])
            self._admin.command("osd in", ids=[str(self._osd)])
            with self._lab.full_speed():
                self.wait("is not whole again", self.is_whole)

    def recovers(self) -> bool:
        """Return whether a PG is being recovered or backfilled now, and objects are left."""
        map_ = self._admin.command("status")["pgmap"]
        states = {word for state in map_.get("pgs_by_state", ()) for word in state["state_name"].split("+")}
        return bool(states & {"recovering", "backfilling"}) and bool(map_.get("degraded_objects"))

    def is_whole(self) -> bool:
        state = self._lab.status()
        return state.health == "HEALTH_OK" and set(state.pgs) == {"active+clean"}

    def recovered_nbytes(self) -> int:
        """Return the bytes that were recovered since the PGs of the pool were created."""
        return sum(
            int(pg["stat_sum"]["num_bytes_recovered"])
            for pg in self._admin.command("pg ls-by-pool", poolstr=POOL)["pg_stats"]
        )

    def run(self, size: str, pattern: str) -> Run:
        """Run a cell on the client's image."""
        job = self._fio(
            IMAGE, f"--bs={size}", f"--rw={pattern}", f"--iodepth={DEPTH[size]}", "--time_based",
            f"--runtime={RUN_SECONDS}s", f"--ramp_time={RAMP_SECONDS}s", "--randrepeat=0",
        )["read" if "read" in pattern else "write"]  # fmt: skip
        return Run(float(job["iops"]), float(job["clat_ns"]["percentile"]["99.000000"]) / 1e6)

    def wait(self, problem: str, until: Callable[[], bool], *, seconds: float = 300.0) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() > deadline:
                sys.exit(f"lab {self._lab.name} {problem} after {seconds:g} s: {self._lab.status().checks}")
            time.sleep(0.3)

    def _set(self, name: str, value: str | None) -> None:
        if value is None:
            self._admin.command("config rm", who="osd", name=name)
        else:
            self._admin.command("config set", who="osd", name=name, value=value)

    def _fill(self, image: str, nbytes: int) -> None:
        """Create an image and write all of it with data that cannot be compressed."""
        rbd = ["rbd", "--conf", str(self._lab.conf), "--pool", POOL]
        subprocess.run([*rbd, "create", image, "--size", f"{nbytes // MIB}M"], check=True)
        with self._lab.full_speed():
            self._fio(image, "--bs=4M", "--rw=write", "--iodepth=4", "--refill_buffers")

    def _fio(self, image: str, *options: str) -> Any:
        argv = [
            "fio", "--name=run", "--ioengine=rbd", "--clientname=admin", f"--pool={POOL}", f"--rbdname={image}",
            "--direct=1", "--output-format=json", *options,
        ]  # fmt: skip
        environment = {**os.environ, "CEPH_CONF": str(self._lab.conf)}
        ended = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if ended.returncode:
            sys.exit(f"fio failed with exit code {ended.returncode}: {ended.stdout}")
        return json.loads(ended.stdout[ended.stdout.index("{") :])["jobs"][0]


def measure(lab: Lab, rounds: int, other_nbytes: int, output: Path) -> None:
    """Run all rounds; write each run that counts as a line of a CSV file."""
    if lab.spec.n_hosts < 3:
        sys.exit(f"lab {lab.name} has {lab.spec.n_hosts} hosts; two copies recover only with three: --hosts 3")
    shuffle = random.Random(2017)
    with closing(RadosAdmin(lab.conf)) as admin, output.open("w", newline="") as stream:
        place = RecoveringLab(lab, admin, other_nbytes)
        table = csv.writer(stream)
        table.writerow(COLUMNS)
        with place.prepared():
            for number in range(rounds):
                for scheduler in shuffle.sample(list(SCHEDULERS), len(SCHEDULERS)):
                    place.use(scheduler)
                    cells = shuffle.sample(CELLS, len(CELLS))
                    for cell in cells:
                        _run(place, cell, (number, scheduler, "whole"), table)
                    with place.recovering():
                        for cell in cells:
                            _run(place, cell, (number, scheduler, "recovering"), table)
                    stream.flush()
                    print(f"round {number + 1} of {rounds}, {scheduler}: {time.strftime('%H:%M:%S')}", flush=True)


def _run(place: RecoveringLab, cell: tuple[str, str], case: tuple[int, str, str], table: Any) -> None:
    recovers = case[-1] == "recovering"
    began, before = time.monotonic(), place.recovered_nbytes()
    run = place.run(*cell)
    rate = (place.recovered_nbytes() - before) / MIB / (time.monotonic() - began)
    if recovers and not place.recovers():
        print(f"{'-'.join(cell)} under {case[1]} does not count: recovery had ended", flush=True)
        return
    results = (run.iops, run.p99_ms, rate if recovers else 0.0)
    table.writerow((*case, "-".join(cell), *(f"{value:.3f}" for value in results)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lab", nargs="?", help="name of a lab of Ceph 17.2 or later with three hosts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=int, default=2048, metavar="MIB", help="size of the image to recover")
    parser.add_argument("-o", "--output", type=Path, help="CSV file for the runs")
    parser.add_argument("--table", type=Path, metavar="CSV", help="print the table of these runs")
    asked: Any = parser.parse_args()
    if asked.table is None:
        if not (asked.lab and asked.output):
            parser.error("give a lab and -o, or --table")
        measure(Lab.open(asked.lab), asked.rounds, asked.data * MIB, asked.output)
    with (asked.table or asked.output).open(newline="") as stream:
        print(table_of(rows_of(list(csv.DictReader(stream)))))


if __name__ == "__main__":
    main()
