"""The sweep's runner on the real lab: fio directly through librbd, and an OSD that dies during the sweep."""

import json
import mmap
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.delivery.client_conf import ask, live_sockets
from cephfit.core.errors import ClusterError, HostError
from cephfit.core.protocols import NullProgress
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.core.values.sample import Sample, State
from cephfit.core.waiting import wait_until_clear
from cephfit.lab.cluster import Lab
from cephfit.lab.daemons import processes
from cephfit.lab.devices import image_export
from cephfit.lab.devices.disks import device_number
from cephfit.lab.devices.image_export import KrbdExport
from cephfit.lab.devices.throttle import find_throttle
from cephfit.lab.lab_spec import DiskLimits
from cephfit.lab.lab_target import LabTarget
from cephfit.measure.engine import CellOutcome, CellRun
from cephfit.measure.fio.fio_local import FioEngine
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import read_sweep
from cephfit.sweep.execution.runner import run_sweep
from cephfit.sweep.sweep_plan import Sweep

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


def wait_until_calm(lab: Lab) -> None:
    """Wait until the pools' rates, which the cluster gives of the last seconds, no longer show an earlier test."""
    admin = RadosAdmin(lab.conf)

    def busy() -> list[str]:
        return [pool["pool_name"] for pool in admin.command("osd pool stats") if pool.get("client_io_rate")]

    try:
        assert not wait_until_clear(busy, seconds=30, poll_seconds=0.5)
    finally:
        admin.close()


def test_fio_reaches_the_images_through_librbd_by_itself(lab_cluster: Lab, tmp_path: Path) -> None:
    wait_until_calm(lab_cluster)
    sweep = sweep_of(tmp_path, patterns="randread, randwrite", repeats=1, seconds=0.5, ioengine="rbd")
    target = LabTarget(lab_cluster, librbd=True)
    try:
        with Store.open(tmp_path / "s.sqlite", create=True) as store:
            run = run_sweep(sweep, target, store, NullProgress(), resume=None)
            samples = store.samples(run.run_id)
            text = store.fio_json(run.run_id, samples[0].key)
    finally:
        target.reset()
        target.close()
    assert [s.state for s in samples] == [State.OK] * 8, [s.reason for s in samples]
    assert all(s.metrics is not None and s.metrics.iops > 20 for s in samples)
    assert text is not None
    options = json.loads(text)["global options"]
    assert options["ioengine"] == "rbd", "the figures are librbd's, not a block device's"


def test_a_volume_is_cold_after_its_client_cached_it(lab_cluster: Lab) -> None:
    """With ``rbd_cache_policy = writeback`` librbd caches reads in addition to the kernel."""
    cached = (("rbd_cache", True), ("rbd_cache_policy", "writeback"))
    configuration = Configuration("wb", tuple(Setting(Partition.CEPH, "client", key, v) for key, v in cached))
    target = LabTarget(lab_cluster)

    def missed_nbytes() -> int:
        (socket,) = live_sockets(lab_cluster.folder / "target" / "sock")
        return sum(part.get("cache_bytes_miss", 0) for part in ask(socket, "perf dump").values())

    try:
        assert target.apply(configuration, n_clients=1, volume_nbytes=32 << 20).ok
        (client,) = target.clients()
        assert client.device is not None
        read_first_mib(client.device)
        read_first_mib(client.device)
        assert missed_nbytes() == 1 << 20, "the second time it came from the cache"
        target.drop_caches()
        read_first_mib(client.device)
        assert missed_nbytes() == 2 << 20
    finally:
        target.reset()
        target.close()


def read_first_mib(device: Path) -> None:
    descriptor = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        assert os.preadv(descriptor, [mmap.mmap(-1, 1 << 20)], 0) == 1 << 20
    finally:
        os.close(descriptor)


def test_a_dead_export_ends_the_sweep_and_the_next_start_continues(lab_cluster: Lab, tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, patterns="randread, randwrite", repeats=1, seconds=0.3, ioengine="libaio")
    target = LabTarget(lab_cluster)
    engine = FioEngine()

    class Killer:
        """The real fio; after its first run the programs of the volumes are killed."""

        def __init__(self) -> None:
            self.facts, self.warm = engine.facts, engine.warm

        def run(self, run: CellRun) -> CellOutcome:
            outcome = engine.run(run)
            exports = lab_cluster.folder / "target" / "exports"
            processes.kill([int(file.read_text()) for file in exports.glob("*/pid")])
            return outcome

    try:
        with Store.open(tmp_path / "s.sqlite", create=True) as store:
            with pytest.raises(HostError, match="has died"):
                run_sweep(sweep, target, store, NullProgress(), resume=None, engine=Killer())
            (begun,) = store.runs()
            run_sweep(sweep, target, store, NullProgress(), resume=begun)
            samples = store.samples(begun.run_id)
    finally:
        target.reset()
        target.close()
    assert [s.state for s in samples] == [State.OK] * 8, "two cells of two configurations on two clients"


def test_a_volume_has_no_limit_that_another_lab_left_on_its_device_number(lab_cluster: Lab) -> None:
    """The kernel's limit belongs to the device number, and stays when a lab's disk is detached by hand."""
    throttle = find_throttle(lab_cluster.folder)
    target = LabTarget(lab_cluster)
    try:
        for _ in range(2):
            target.apply(Configuration("A"), n_clients=1, volume_nbytes=32 << 20, fill=False)
            (client,) = target.clients()
            assert client.device is not None
            assert throttle.limits(device_number(client.device)) is None
            throttle.set(device_number(client.device), DiskLimits(iops=7, nbytes_per_s=1 << 20))
    finally:
        target.reset()
        target.close()
        throttle.clear(device_number(client.device))


def test_the_lab_measures_every_configuration_through_librbd(
    lab_cluster: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel with its own rbd client would use that client, without client options and journaling."""
    monkeypatch.setattr(KrbdExport, "usable", classmethod(lambda _: True))
    assert image_export.export_path() == "krbd"
    configuration = Configuration(
        "payload", (Setting(Partition.CEPH, "client", "rbd_journal_max_payload_bytes", "4M"),)
    )
    target = LabTarget(lab_cluster)
    try:
        applied = target.apply(configuration, n_clients=1, volume_nbytes=32 << 20)
        assert applied.ok, applied.mismatches
    finally:
        target.reset()
        target.close()


@pytest.mark.slow  # a dead OSD that ends the sweep is tested below
def test_an_osd_killed_during_a_run_makes_samples_invalid_and_they_are_repeated(
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
            run = run_sweep(sweep, target, store, NullProgress(), resume=None, health_limit_seconds=90)
        finally:
            villain.join()
            target.reset()
            target.close()
        samples = store.samples(run.run_id)
    ok = [s.key for s in samples if s.state is State.OK]
    places = {(k.configuration, k.cell, k.client, k.repeat) for k in ok}
    assert len(ok) == len(places) == 2 * 2 * 2 * 2, "every sample of the plan is there, each once"
    touched = [s for s in samples if s.state is not State.OK]
    assert touched, "a run with a dead OSD must not become a valid sample"
    assert all(s.reason for s in touched)


@pytest.mark.slow
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
                run_sweep(sweep, target, store, NullProgress(), resume=None, health_limit_seconds=3)
            assert all(s.state is not State.OK for r in store.runs() for s in store.samples(r.run_id))
    finally:
        lab_cluster.start()
        target.reset()
        target.close()
