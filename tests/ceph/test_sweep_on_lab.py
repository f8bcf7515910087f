"""The sweep's runner on the real lab: fio straight through librbd, and an OSD that dies in the middle."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from cephfit.errors import ClusterError
from cephfit.lab.cluster import Lab
from cephfit.lab.target import LabTarget
from cephfit.results.store import Store
from cephfit.sample import Sample, State
from cephfit.silence import Silence
from cephfit.sweep.file import read_sweep
from cephfit.sweep.model import Sweep
from cephfit.sweep.runner import run_sweep

pytestmark = [pytest.mark.ceph, pytest.mark.root, pytest.mark.fio]

SWEEP = """
schema_version: 1
name: small
description: one cell or two on the lab
configurations:
  A: {{}}
  payload:
    ceph: {{client: {{rbd_journal_max_payload_bytes: 4M}}}}
measurement:
  sizes: [4K]
  patterns: [{patterns}]
  clients: 2
  volume_size: 32M
  repeats: {repeats}
  ramp_seconds: 0.1
  run_seconds: {seconds}
  ioengine: {ioengine}
  iodepth: 1
  direct: true
  cache: cold
  seed: 3
"""


def sweep_of(folder: Path, **values: object) -> Sweep:
    path = folder / "small.yaml"
    path.write_text(SWEEP.format(**values))
    return read_sweep(path)


def test_fio_reaches_the_images_through_librbd_by_itself(lab_cluster: Lab, tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, patterns="randread, randwrite", repeats=1, seconds=0.5, ioengine="rbd")
    target = LabTarget(lab_cluster, librbd=True)
    try:
        with Store.open(tmp_path / "s.sqlite", create=True) as store:
            run = run_sweep(sweep, target, store, Silence(), resume=None)
            samples = store.samples(run.run_id)
            text = store.fio_json(run.run_id, samples[0].key)
    finally:
        target.reset()
        target.close()
    assert [s.state for s in samples] == [State.OK] * 8, [s.reason for s in samples]
    assert all(s.metrics is not None and s.metrics.iops > 20 for s in samples)
    assert text is not None
    assert '"ioengine" : "rbd"' in text, "the figures are librbd's, not a block device's"


def test_an_osd_killed_in_the_middle_makes_samples_invalid_and_they_are_taken_again(
    lab_cluster: Lab, tmp_path: Path
) -> None:
    sweep = sweep_of(tmp_path, patterns="randread, randwrite", repeats=2, seconds=2.5, ioengine="libaio")
    victim = lab_cluster.osd_ids()[0]  # of the hdd class, where the default pool lies
    target = LabTarget(lab_cluster)

    def samples_of(store: Store) -> list[Sample]:
        return [s for run in store.runs() for s in store.samples(run.run_id)]

    with Store.open(tmp_path / "s.sqlite", create=True) as store:

        def disturb() -> None:
            with Store.open(tmp_path / "s.sqlite") as watched:
                until = time.monotonic() + 120
                while not samples_of(watched):
                    assert time.monotonic() < until
                    time.sleep(0.1)
            time.sleep(1.0)  # the next run of fio is under way
            os.kill(int((lab_cluster.folder / "run" / f"osd.{victim}.pid").read_text()), signal.SIGKILL)
            time.sleep(3.0)
            lab_cluster.start()

        villain = threading.Thread(target=disturb)
        villain.start()
        try:
            run = run_sweep(sweep, target, store, Silence(), resume=None, health_limit_seconds=90)
        finally:
            villain.join()
            target.reset()
            target.close()
        samples = store.samples(run.run_id)
    ok = [s.key for s in samples if s.state is State.OK]
    places = {(k.configuration, k.cell, k.client, k.repeat) for k in ok}
    assert len(ok) == len(places) == 2 * 2 * 2 * 2, "every sample of the plan is there, each once"
    touched = [s for s in samples if s.state is not State.OK]
    assert touched, "a run with a dead OSD in it must not have become a sample"
    assert all(s.reason for s in touched)


def test_an_osd_that_stays_dead_ends_the_sweep_with_what_was_measured_kept(
    lab_cluster: Lab, tmp_path: Path
) -> None:
    sweep = sweep_of(tmp_path, patterns="randread", repeats=1, seconds=0.3, ioengine="libaio")
    victim = lab_cluster.osd_ids()[0]
    target = LabTarget(lab_cluster)
    try:
        with Store.open(tmp_path / "s.sqlite", create=True) as store:
            os.kill(int((lab_cluster.folder / "run" / f"osd.{victim}.pid").read_text()), signal.SIGKILL)
            with pytest.raises(ClusterError, match=r"OSD_DOWN|osd.* down"):
                run_sweep(sweep, target, store, Silence(), resume=None, health_limit_seconds=3)
            assert all(s.state is not State.OK for r in store.runs() for s in store.samples(r.run_id))
    finally:
        lab_cluster.start()
        target.reset()
        target.close()
