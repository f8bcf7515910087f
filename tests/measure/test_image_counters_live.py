"""fio through librbd held against what the OSDs of a real cluster count for its images."""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import rbd

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.core.protocols import Client
from cephfit.core.units import MIB
from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import State
from cephfit.lab.cluster import Lab
from cephfit.measure import osd_watch
from cephfit.measure.engine import CellRun, disagreement
from cephfit.measure.fio.fio_local import FioEngine
from cephfit.measure.rbd_bench import RbdBenchEngine
from cephfit.measure.surveillance import Circumstances, judge
from cephfit.sweep.declaration.sweep_file import parse_sweep

pytestmark = [pytest.mark.ceph, pytest.mark.root, pytest.mark.fio]

NBYTES = 32 * MIB
MEASUREMENT = (
    "{schema_version: 1, name: x, measurement: {clients: 2, volume_size: 32M, repeats: 1, ioengine: rbd, "
    "iodepth: 4, ramp_seconds: %g, run_seconds: %g, seed: 1}}"
)

Images = Callable[..., list[Client]]


@pytest.fixture
def images(lab_cluster: Lab, tmp_path: Path) -> Iterator[Images]:
    """Makes images full of random bytes, and clients that fio opens them for; all go afterwards."""
    admin, made = RadosAdmin(lab_cluster.conf), []
    ioctx = admin.cluster.open_ioctx(lab_cluster.spec.pool)

    def make(
        *names: str, features: int = rbd.RBD_FEATURE_LAYERING, options: str = "", full: bool = True
    ) -> list[Client]:
        conf = tmp_path / "client.conf"
        conf.write_text(f"{lab_cluster.conf.read_text()}\n[client]\n{options}\n")
        clients = []
        for name in (f"counted-{name}" for name in names):  # tests of the lab leave images in its pool
            rbd.RBD().create(ioctx, name, NBYTES, old_format=False, features=features)
            made.append(name)
            with rbd.Image(ioctx, name) as image:
                image.write(os.urandom(NBYTES) if full else b"", 0)
            how = {"ioengine": "rbd", "pool": lab_cluster.spec.pool, "rbdname": name, "clientname": "admin"}
            clients.append(Client(f"c{len(clients)}", {**how, "conf": str(conf)}, NBYTES))
        return clients

    try:
        yield make
    finally:
        for name in made:
            rbd.RBD().remove(ioctx, name)
        ioctx.close()
        admin.close()


def measure(clients: list[Client], cell: str, *, ramp: float, seconds: float) -> CellRun:
    measurement = parse_sweep(MEASUREMENT % (ramp, seconds), file="x").measurement
    return CellRun("A", Cell.parse(cell), 0, 0, measurement, clients, {c.name: 1 for c in clients})


@pytest.mark.parametrize("cell", ["4K-randwrite", pytest.param("32M-write", marks=pytest.mark.slow)])
def test_without_a_ramp_the_osds_count_for_each_image_what_fio_says_to_the_byte(
    images: Images, monkeypatch: pytest.MonkeyPatch, cell: str
) -> None:
    monkeypatch.setattr(osd_watch, "LEAST_PERIODS", 2)
    run = measure(images("one", "other"), cell, ramp=0, seconds=3)
    for _ in range(6):  # a machine that is busy with other tests may send a report too late to be counted
        time.sleep(3)  # an earlier test may have asked before: the reports about filling them are to be over
        outcome = FioEngine().run(run)
        if all(given.count is not None for given in outcome.clients.values()):
            break
    assert outcome.fio_json is not None
    said = {job["jobname"]: job["write"]["io_bytes"] for job in json.loads(outcome.fio_json)["jobs"]}
    for name, given in outcome.clients.items():
        assert given.count is not None and given.metrics is not None, given
        assert given.count.total_nbytes == said[name] > 0
        assert given.evidence["image"]["written_nbytes"] == said[name]
        assert disagreement(given.metrics, given.count) == ""


@pytest.mark.slow
def test_rbd_bench_is_held_against_the_same_counts(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(osd_watch, "LEAST_PERIODS", 2)
    run = measure(images("benched", full=False)[:1], "4K-randwrite", ramp=0, seconds=3)
    engine = RbdBenchEngine()
    engine.prepare(run)
    time.sleep(3)  # the reports about the trial run are to be over
    outcome = engine.run(run)
    given = outcome.clients["c0"]
    assert given.count is not None and given.metrics is not None, given
    assert given.count.total_nbytes == given.metrics.n_ios * run.cell.size.benchmark_nbytes
    assert outcome.program == "rbd bench"
    assert disagreement(given.metrics, given.count) == ""


def test_a_short_run_says_why_it_was_not_held_against_the_images_and_is_ok(images: Images) -> None:
    run = measure(images("short"), "4K-randwrite", ramp=0, seconds=0.5)
    (sample,) = judge(run, FioEngine().run(run), Circumstances(1, 2, (1, 2), (), 1))
    assert sample.state is State.OK
    assert "only 0.5 s were measured" in sample.evidence["independent_count"]["none_because"]


@pytest.mark.parametrize(
    ("options", "features", "why"),
    [
        ("rbd_cache = true\nrbd_cache_policy = writeback", 0, "librbd's cache (writeback)"),
        ("", rbd.RBD_FEATURE_EXCLUSIVE_LOCK | rbd.RBD_FEATURE_JOURNALING, "journal"),
    ],
)
def test_where_osds_see_other_bytes_than_fio_nothing_is_held_against_it(
    images: Images, monkeypatch: pytest.MonkeyPatch, options: str, features: int, why: str
) -> None:
    monkeypatch.setattr(osd_watch, "LEAST_PERIODS", 1)
    (client,) = images("else", options=options, full=False, features=features or rbd.RBD_FEATURE_LAYERING)
    outcome = FioEngine().run(measure([client], "4K-randwrite", ramp=0, seconds=1))
    assert outcome.clients["c0"].count is None
    assert why in outcome.clients["c0"].uncounted


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["4K-randwrite", "4K-randread", "1M-write"])
def test_runs_long_enough_are_held_against_their_images(images: Images, cell: str) -> None:
    """Ten reports of a lab; the ramp is separated from the measured time to within two of them."""
    clients = images("one", "other")
    run = measure(clients, cell, ramp=2, seconds=10)
    samples = judge(run, outcome := FioEngine().run(run), Circumstances(1, 2, (1, 2), (), 1))
    assert [s.state for s in samples] == [State.OK, State.OK], [s.reason for s in samples]
    for given in outcome.clients.values():
        assert given.count is not None and given.metrics is not None, given.uncounted
        by_fio = given.metrics.nbytes_per_s * given.metrics.runtime_ns / 1e9
        assert by_fio <= given.count.total_nbytes
        assert abs(given.count.window_nbytes - by_fio) <= 0.5 * by_fio
