"""How many clients a pool serves, predicted and really run: clients are added until p99 passes the limit.

Real programs (lab/workloads/programs) run at a fixed pace on a pool of a lab. One client is traced first: its
profile and the baselines of the sweep `capacity` give the number of clients that `cephfit capacity` expects within
the latency limit. Then 1, 2, 3 ... clients run at once, each on its own volume, and all are traced. The real
number is the last one before the 99th percentile of the latency of all clients' accesses passes the limit, or
before a client does less than nine tenths of the operations that one client alone does. The folder keeps the
profiles and the answers.

    cephfit lab up --name LAB
    cephfit sweep run capacity --target lab:LAB --store capacity.sqlite
    benchmarks/clients_until_full.py LAB capacity.sqlite FOLDER
"""

import argparse
import json
import os
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from cephfit.cli.main import cephfit
from cephfit.cli.options.workload_choice import trial_of
from cephfit.core.protocols import NullProgress
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.measurement import CacheCondition
from cephfit.core.values.sample import State
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_target import LabTarget
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.verification import run_once
from cephfit.traces.capturing.capture import observing

PROGRAMS = Path(__file__).parents[1] / "lab/workloads/programs"
PACES = {
    "log-append": {"A": 24.0, "ssd": 96.0},
    "key-value": {"A": 20.0, "ssd": 80.0},
    "threaded-reader": {"A": 100.0, "ssd": 400.0},
}
"""Operations per second of one client, by program and pool: about a fifth of what one client reaches."""
KEPT = 0.9
"""Share of its operations alone that a client must still do."""
P99_MS = {"A": 300.0, "ssd": 60.0}
"""The latency limit of each pool."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("lab", help="name of a lab that is up")
    arguments.add_argument("baselines", help="store with a run of the sweep `capacity`")
    arguments.add_argument("folder", type=Path, help="for the profiles and the answers")
    arguments.add_argument("--programs", nargs="+", choices=sorted(PACES), default=list(PACES))
    arguments.add_argument("--pools", nargs="+", choices=sorted(P99_MS), default=list(P99_MS))
    arguments.add_argument("--seconds", type=float, default=20.0, help="measured time of a run")
    arguments.add_argument("--most", type=int, default=12, help="most clients to run")
    chosen = arguments.parse_args()
    sweep = parse_sweep((PROGRAMS.parents[2] / "sweeps/capacity.yaml").read_text(), file="capacity.yaml")
    target = LabTarget(Lab.open(chosen.lab))
    chosen.folder.mkdir(parents=True, exist_ok=True)
    print("program          pool  pace/s  accesses/s  predicted (interval)  measured  clients: p99 in ms, pace")
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["CEPHFIT_IMAGES"] = folder
            for program, pool in product(chosen.programs, chosen.pools):
                os.environ["CEPHFIT_PACE"] = str(PACES[program][pool])
                case = _Case(target, program, sweep.configuration(pool), chosen.seconds, chosen.folder)
                print(case.compared(chosen.baselines, P99_MS[pool], chosen.most), flush=True)
    finally:
        target.reset()
        target.close()


class _Case:
    """One program on one pool."""

    def __init__(
        self, target: LabTarget, program: str, pool: Configuration, seconds: float, results: Path
    ) -> None:
        self._target = target
        self._program = program
        self._pool = pool
        self._seconds = seconds
        self._results = results

    def compared(self, baselines: str, p99_ms: float, most: int) -> str:
        """Return a line of the table."""
        p99_by_n: dict[int, float] = {}
        operations: dict[int, float] = {}
        said: dict[str, Any] = {}
        for n in range(1, most + 1):
            with tempfile.TemporaryDirectory() as folder:
                operations[n] = self._run(n, Path(folder)) / n
                profile = _cephfit("trace", "profile", folder, "--describe", "full", "--name", self._program)
            p99_by_n[n] = profile["description"]["percentiles"]["latency_us"]["all"]["p99"] / 1000
            path = self._results / f"{self._program}-{self._pool.name}-{n}.json"
            path.write_text(json.dumps(profile))
            if n == 1:
                said = _cephfit(
                    *("capacity", str(path), "--baselines", baselines, "--pool", self._pool.name),
                    *("--p99-ms", str(p99_ms), "--confidence", "0.9"),
                )
                (self._results / f"{self._program}-{self._pool.name}.capacity.json").write_text(json.dumps(said))
            if p99_by_n[n] > p99_ms or operations[n] < KEPT * operations[1]:
                break
        last = len(p99_by_n)
        is_full = p99_by_n[last] > p99_ms or operations[last] < KEPT * operations[1]
        (one,) = next(p for p in said["pools"] if p["pool"] == self._pool.name)["classes"]
        alone = one["vms_alone"]
        count = f"{'>= ' if one['sustainable_is_bound'] else ''}{alone['value']:.0f}"
        ends = f"{alone['low']:.0f} to {'any' if alone['high'] is None else round(alone['high'])}"
        line = "  ".join(f"{n}: {p99:.0f} {operations[n] / operations[1]:.0%}" for n, p99 in p99_by_n.items())
        return (
            f"{self._program:16} {self._pool.name:5} {os.environ['CEPHFIT_PACE']:>6} {one['demand_per_s']:11.1f}  "
            f"{count} ({ends})  {last - 1 if is_full else f'{last}+'}  {line}"
        )

    def _run(self, n_clients: int, folder: Path) -> float:
        """Trace a run into a folder; return the operations per second of all clients."""
        trial = trial_of(
            self._target,
            f"program:{PROGRAMS / self._program}",
            scale=None,
            repeats=1,
            seconds=self._seconds,
            seed=2017,
            cache=CacheCondition.COLD,
            observe=lambda device: observing(device, folder),
            n_clients=n_clients,
        )
        sample = run_once(self._target, self._pool, trial, progress=NullProgress())
        if sample.state is not State.OK or sample.value is None:
            sys.exit(f"{self._program} on {self._pool.name} with {n_clients} clients: {sample.reason}")
        return sample.value


def _cephfit(*arguments: str) -> dict[str, Any]:
    """Return the JSON document that a command prints; 1 is the exit code of a fleet that does not fit."""
    done = CliRunner().invoke(cephfit, [*arguments, "--json"])
    if done.exit_code not in (0, 1) or not done.stdout:
        sys.exit(f"cephfit {arguments[0]}: {done.exception or done.stderr}")
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    main()
