"""A foreign client on the cluster while a sample is taken: the sample is invalid, and taken again."""

import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from existing_cluster_lab import open_existing_cluster
from rbd_bench import writing

from cephfit.core.protocols import NullProgress
from cephfit.core.values.sample import Sample, State
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_target import LabTarget
from cephfit.measure.engine import CellOutcome, CellRun
from cephfit.measure.fio.fio_local import FioEngine
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.runner import run_sweep
from cephfit.targets.ceph.ceph_target import CephTarget

pytestmark = [pytest.mark.ceph, pytest.mark.root, pytest.mark.fio, pytest.mark.slow]

SWEEP = """
schema_version: 1
name: disturbed
measurement: {sizes: [4K], patterns: [randread], clients: 2, volume_size: 32M, repeats: 2, ramp_seconds: 0.5,
  run_seconds: 4, ioengine: libaio, iodepth: 1, direct: true, cache: cold, seed: 3, max_attempts: 9}
"""
FOREIGN = "somebody"


class Disturbed(FioEngine):
    """The real fio; while it runs for the second time, another client is at work on the same cluster."""

    def __init__(self, foreign_load: Sequence[str]) -> None:
        super().__init__()
        self.n_runs = 0
        self.foreign_load = foreign_load

    def run(self, run: CellRun) -> CellOutcome:
        self.n_runs += 1
        if self.n_runs != 2:
            return super().run(run)
        with subprocess.Popen(self.foreign_load, stdout=subprocess.DEVNULL) as process:
            try:
                return super().run(run)
            finally:
                process.terminate()


def sample_under_foreign_load(
    target: CephTarget, sweep: str, foreign_load: Sequence[str], store: Path
) -> list[Sample]:
    """Run a sweep with one disturbed run; return that run's samples."""
    with Store.open(store, create=True) as opened:
        run = run_sweep(
            parse_sweep(sweep, file="disturbed"),
            target,
            opened,
            NullProgress(),
            resume=None,
            engine=Disturbed(foreign_load),
        )
        samples = opened.samples(run.run_id)
    n_clients = len({s.key.client for s in samples})
    first, disturbed = samples[:n_clients], samples[n_clients : 2 * n_clients]
    assert [s.state for s in first] == [State.OK] * n_clients, [s.reason for s in first]
    for sample in disturbed:
        assert (sample.state, sample.key.attempt) == (State.INVALID, 0), sample.reason
        assert "foreign clients did " in sample.reason
        assert sample.metrics is not None, "what was measured is kept with the reason"
    ok = Counter((s.key.client, s.key.repeat) for s in samples if s.state is State.OK)
    assert ok == {(s.key.client, repeat): 1 for s in first for repeat in (0, 1)}
    again = [s for s in samples if s.state is State.OK and s.key.repeat == disturbed[0].key.repeat]
    assert all(s.key.attempt > 0 for s in again)
    return disturbed


def test_a_sample_under_foreign_loads_load_is_invalid_and_taken_again(lab_cluster: Lab, tmp_path: Path) -> None:
    """The foreign client writes to a separate pool."""
    pool = lab_cluster.spec.pool
    rados = ["rados", "--conf", str(lab_cluster.conf), "--pool", pool]
    load = ["bench", "600", "write", "-b", "4096", "-t", "16", "--run-name", FOREIGN, "--no-cleanup"]
    target = LabTarget(lab_cluster)
    try:
        disturbed = sample_under_foreign_load(target, SWEEP, [*rados, *load], tmp_path / "s.sqlite")
    finally:
        target.reset()
        target.close()
        subprocess.run([*rados, "cleanup", "--run-name", FOREIGN], check=True, capture_output=True)
    assert all(f"(pools {pool} " in sample.reason for sample in disturbed)


def test_foreign_io_within_the_only_pool_is_seen_by_its_image(lab_cluster: Lab, tmp_path: Path) -> None:
    """The run's own load in that pool is no foreign I/O: the undisturbed runs are ok."""
    pool = lab_cluster.spec.pool
    rbd = ["rbd", "--conf", str(lab_cluster.conf)]
    image = f"{pool}/{FOREIGN}"
    subprocess.run([*rbd, "create", "--size", "64M", image], check=True, capture_output=True)
    target = open_existing_cluster(lab_cluster, only_pool=pool)
    try:
        sweep = SWEEP.replace("libaio", "rbd").replace("cold", "warm")
        disturbed = sample_under_foreign_load(target, sweep, [*rbd, *writing(image)], tmp_path / "s.sqlite")
    finally:
        target.reset()
        target.close()
        subprocess.run([*rbd, "remove", "--no-progress", image], check=True, capture_output=True)
    assert all(f"(images {image} " in sample.reason for sample in disturbed)
