"""rados bench and rbd bench on the real lab: figures, the OSDs' own count of them, and nothing left behind."""

import subprocess
from pathlib import Path

import pytest

from cephfit.core.protocols import NullProgress
from cephfit.core.values.sample import Sample, State
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_target import LabTarget
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.runner import run_sweep

pytestmark = [pytest.mark.ceph, pytest.mark.root]

SWEEP = """
schema_version: 1
name: engines
measurement:
  sizes: [32K]
  clients: 2
  volume_size: 16M
  repeats: 1
  run_seconds: 1
  iodepth: 4
  engine: {engine}
  seed: 3
"""


def measured(lab: Lab, engine: str, folder: Path) -> tuple[list[Sample], dict[str, object], list[str]]:
    """(samples, what measured, objects in the pools that are none of RBD's)."""
    target = LabTarget(lab, librbd=True)
    sweep = parse_sweep(SWEEP.format(engine=engine), file="engines.yaml")
    try:
        with Store.open(folder / "engines.sqlite", create=True) as store:
            run = run_sweep(sweep, target, store, NullProgress(), resume=None)
            samples = store.samples(run.run_id)
        (client, _) = target.clients()
        listing = ("rados", "--conf", str(lab.conf), "--pool", client.fio_options["pool"], "ls", "--all")
        objects = subprocess.run(listing, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    finally:
        target.reset()
        target.close()
    return samples, dict(run.facts["engine"]), [name for name in objects if "bench" in name and "rbd" not in name]


@pytest.mark.slow
def test_rados_bench_measures_three_patterns_and_the_osds_counted_the_same(
    lab_cluster: Lab, tmp_path: Path
) -> None:
    samples, facts, left = measured(lab_cluster, "rados-bench", tmp_path)
    assert facts["name"] == "rados-bench"
    by_pattern = {p: [s for s in samples if s.key.cell.pattern.value == p] for p in ("read", "write", "randread")}
    for found in by_pattern.values():
        assert [s.state for s in found] == [State.OK] * 2, [s.reason for s in found]
        for sample in found:
            assert sample.metrics is not None and sample.metrics.iops > 10
            assert "2 clients together" in sample.evidence["independent_count"]["source"]
    skipped = [s for s in samples if s.key.cell.pattern.value == "randwrite"]
    assert {(s.state, s.reason.split(";")[0]) for s in skipped} == {
        (State.SKIPPED, "rados bench writes new objects sequentially")
    }
    assert left == [], "its objects are gone"


@pytest.mark.slow
def test_rbd_bench_measures_every_pattern(lab_cluster: Lab, tmp_path: Path) -> None:
    samples, facts, _ = measured(lab_cluster, "rbd-bench", tmp_path)
    assert facts["name"] == "rbd-bench"
    assert [s.state for s in samples] == [State.OK] * 8, [s.reason for s in samples]
    for sample in samples:
        assert sample.metrics is not None and sample.metrics.runtime_ns > 0.3e9
    writes = [s for s in samples if s.key.cell.pattern.value == "randwrite"]
    by_program = sum(s.metrics.n_ios * 32768 for s in writes if s.metrics is not None)
    assert writes[0].evidence["osds_counted_nbytes"] == pytest.approx(by_program, rel=0.05)
