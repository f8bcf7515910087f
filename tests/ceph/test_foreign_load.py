"""Somebody else's client on the cluster while a sample is taken: the sample is invalid, and taken again."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from cephfit.lab.cluster import Lab
from cephfit.lab.target import LabTarget
from cephfit.results.store import Store
from cephfit.sample import State
from cephfit.silence import Silence
from cephfit.sweep.declaration.file import parse_sweep
from cephfit.sweep.engines.engine import CellOutcome, CellRun
from cephfit.sweep.engines.fio import FioEngine
from cephfit.sweep.runner import run_sweep

pytestmark = [pytest.mark.ceph, pytest.mark.root, pytest.mark.fio, pytest.mark.slow]

SWEEP = """
schema_version: 1
name: disturbed
measurement: {sizes: [4K], patterns: [randread], clients: 2, volume_size: 32M, repeats: 2, ramp_seconds: 0.5,
  run_seconds: 4, ioengine: libaio, iodepth: 1, direct: true, cache: cold, seed: 3, max_attempts: 9}
"""
STRANGER = "somebody"


class Disturbed(FioEngine):
    """The real fio; while it runs for the second time, a stranger writes to a pool of his own."""

    def __init__(self, lab: Lab) -> None:
        super().__init__()
        self.n_runs = 0
        self.rados = ["rados", "--conf", str(lab.conf), "--pool", lab.spec.pool]

    def run(self, run: CellRun) -> CellOutcome:
        self.n_runs += 1
        if self.n_runs != 2:
            return super().run(run)
        load = ["bench", "600", "write", "-b", "4096", "-t", "16", "--run-name", STRANGER, "--no-cleanup"]
        with subprocess.Popen([*self.rados, *load], stdout=subprocess.DEVNULL) as stranger:
            try:
                return super().run(run)
            finally:
                stranger.terminate()

    def clean_up(self) -> None:
        subprocess.run([*self.rados, "cleanup", "--run-name", STRANGER], check=True, capture_output=True)


def test_a_sample_beside_a_strangers_load_is_invalid_and_taken_again(lab_cluster: Lab, tmp_path: Path) -> None:
    engine, target = Disturbed(lab_cluster), LabTarget(lab_cluster)
    try:
        with Store.open(tmp_path / "s.sqlite", create=True) as store:
            sweep = parse_sweep(SWEEP, file="disturbed")
            run = run_sweep(sweep, target, store, Silence(), resume=None, engine=engine)
            samples = store.samples(run.run_id)
    finally:
        target.reset()
        target.close()
        engine.clean_up()
    first, disturbed = samples[:2], samples[2:4]
    assert [s.state for s in first] == [State.OK] * 2, [s.reason for s in first]
    for sample in disturbed:
        assert (sample.state, sample.key.attempt) == (State.INVALID, 0)
        assert "others' clients did " in sample.reason
        assert f"(pools {lab_cluster.spec.pool} " in sample.reason
        assert sample.metrics is not None, "what was measured is kept beside the reason"
    ok = Counter((s.key.client, s.key.repeat) for s in samples if s.state is State.OK)
    assert ok == {(client, repeat): 1 for client in ("c0", "c1") for repeat in (0, 1)}
    again = [s for s in samples if s.state is State.OK and s.key.repeat == disturbed[0].key.repeat]
    assert all(s.key.attempt > 0 for s in again)
