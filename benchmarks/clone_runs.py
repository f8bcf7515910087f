"""Run the clones of `cephfit probe` on every configuration of the evaluation set: writes `clones.csv`.

The clones are those of the profiles in `benchmarks/data/evaluation`, with a volume as large as the workloads had.
They run in rounds as in `cephfit evaluate`: each configuration is applied once per round, all clones run on it,
and each round has new volumes. After an interrupt, the same command continues. It needs root, and about 25 minutes
per round. `benchmarks/probe_accuracy.py` compares the values with the real workloads'.

    cephfit lab up --name probes
    .venv/bin/python benchmarks/clone_runs.py lab:probes STORE -o clones.csv
    cephfit lab down --name probes
"""

import argparse
import time
from pathlib import Path

from cephfit.core.protocols import Client, Progress
from cephfit.core.units import MIB
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import PROBE_PREFIX, Run, State, new_run_id
from cephfit.lab.lab_target import LabTarget
from cephfit.lab.workloads.fio_clone import FioClone
from cephfit.operations.evaluation_set import MEASURED_COLUMNS, PROFILES_FOLDER, read_profiles
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.progress_display import progress_display
from cephfit.operations.measuring.sweep_measurement import target_of
from cephfit.operations.measuring.target_choice import open_target
from cephfit.results.store.sample_store import Store
from cephfit.results.tables.csv_text import csv_text
from cephfit.sweep.declaration.sweep_file import find_sweep, read_sweep
from cephfit.sweep.evaluation import evaluate
from cephfit.sweep.trial import Trial
from cephfit.traces.replay.clone_job import clone_of

FOLDER = Path(__file__).parent / "data" / "evaluation"
VOLUME_NBYTES = 383 * MIB
"""With the clone's label: the 384 MiB of the real workloads."""


class _FilledOnce(FioClone):
    """A clone that fills its volume only if no other clone has: all use the same part, and data stay random."""

    def prepare(self, client: Client) -> None:
        assert client.device is not None
        with client.device.open("rb") as file:
            file.seek(self._label_offset)
            if file.read(len(self._label())) == self._label():
                return
        super().prepare(client)


def run_in_store(store: Store, target_text: str, progress: Progress) -> Run:
    """Return the run of these clones: that of the store, or a new one."""
    if runs := store.runs():
        return runs[0]
    target = open_target(target_text, for_change=False, progress=progress, cluster=ClusterOptions())
    try:
        name, facts = target.name, dict(target.facts())
    finally:
        target.close()
    sweep, now_ns = read_sweep(find_sweep("evaluation")), time.time_ns()
    run = Run(
        new_run_id("clones", now_ns),
        sweep.name,
        sweep.text,
        sweep.digest,
        name,
        sweep.measurement.seed,
        now_ns,
        facts,
    )
    store.add_run(run)
    return run


def clone_trial(target: LabTarget, profile: Profile, rounds: int, seconds: float, seed: int) -> Trial:
    assert profile.demands is not None, "profiles of the evaluation set have demands"
    clone = clone_of(profile, profile.demands, nbytes=VOLUME_NBYTES)
    workload = _FilledOnce(clone, unmeasured=target.full_speed)
    return Trial(workload, workload.volume_nbytes, repeats=rounds, seconds=seconds, seed=seed)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("target")
    arguments.add_argument("store")
    arguments.add_argument("-o", "--output", type=Path, required=True)
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--seconds", type=float, default=8.0)
    arguments.add_argument("--workloads", help="names, separated by commas; default: all")
    given = arguments.parse_args()
    wanted = None if given.workloads is None else given.workloads.split(",")
    sweep = read_sweep(find_sweep("evaluation"))
    profiles = [p for p in read_profiles([FOLDER / PROFILES_FOLDER]) if wanted is None or p.name in wanted]
    with Store.open(given.store, create=True, writing=True) as store, progress_display() as progress:
        run = run_in_store(store, given.target, progress)
        with target_of(
            run, given.target, store=store, cluster=ClusterOptions(), apply=False, keep=False, progress=progress
        ) as target:
            assert isinstance(target, LabTarget), "clones run on a lab"
            trials = [clone_trial(target, profile, given.rounds, given.seconds, run.seed) for profile in profiles]
            evaluate(target, sweep.configurations, trials, store=store, run_id=run.run_id, progress=progress)
        rows = [
            (name.removeprefix(PROBE_PREFIX), s.metric, s.configuration, s.repeat, "", f"{s.value:.5g}")
            for name, s in store.workload_samples(run.run_id)
            if s.state is State.OK and s.value is not None
        ]
    given.output.write_text(csv_text(MEASURED_COLUMNS, rows))


if __name__ == "__main__":
    main()
