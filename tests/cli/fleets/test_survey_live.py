"""`cephfit survey` on a real cluster: the rates that fio did on two images."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.cli.main import cephfit
from cephfit.core.units import MIB
from cephfit.lab.cluster import Lab

rbd = pytest.importorskip("rbd", reason="needs Ceph's Python bindings")

pytestmark = [pytest.mark.ceph, pytest.mark.root, pytest.mark.fio]

WRITES, READS, SECONDS = 60, 20, 30
JOB = """[global]
ioengine=rbd
clientname=admin
pool={pool}
direct=1
time_based=1
runtime=60
size=32M
[writes]
rbdname=survey-writes
rw=randwrite
bs=4k
rate_iops={writes}
[reads]
rbdname=survey-reads
rw=randread
bs=64k
rate_iops={reads}
"""


@pytest.mark.slow
def test_two_images_and_what_fio_did(lab_cluster: Lab, tmp_path: Path) -> None:
    pool = lab_cluster.spec.pool
    job = tmp_path / "job.fio"
    job.write_text(JOB.format(pool=pool, writes=WRITES, reads=READS))
    admin = RadosAdmin(lab_cluster.conf)
    try:
        with admin.cluster.open_ioctx(pool) as ioctx:
            for name in ("survey-writes", "survey-reads"):
                rbd.RBD().create(ioctx, name, 32 * MIB)
                with rbd.Image(ioctx, name) as image:
                    image.write(os.urandom(32 * MIB), 0)
            fio = subprocess.Popen(
                ["fio", str(job)],
                env={**os.environ, "CEPH_CONF": str(lab_cluster.conf)},
                stdout=subprocess.DEVNULL,
            )
            try:
                options = ["--conf", str(lab_cluster.conf), "--keyring", str(lab_cluster.keyring)]
                given = ["survey", "ceph", *options, "--seconds", str(SECONDS), "--interval", "5", "--json"]
                done = CliRunner().invoke(cephfit, given)
            finally:
                fio.kill()
                fio.wait()
            for name in ("survey-writes", "survey-reads"):
                rbd.RBD().remove(ioctx, name)
    finally:
        admin.close()
    assert done.exit_code == 0, done.exception
    images = {row["image"]: row for one in json.loads(done.output)["classes"] for row in one["images"]}
    writes, reads = images["survey-writes"], images["survey-reads"]
    # fio connects before its first I/O, and OSDs report once per second: a few seconds of thirty.
    assert writes["operations_per_s"] == pytest.approx(WRITES, rel=0.25)
    assert reads["operations_per_s"] == pytest.approx(READS, rel=0.25)
    assert writes["write_nbytes"] == pytest.approx(4096, rel=0.05)
    assert reads["read_nbytes"] == pytest.approx(65536, rel=0.05)
    assert writes["read_share"] < 0.05 < 0.95 < reads["read_share"]
    assert 10 < writes["write_latency_us"] < 5e6, "nanoseconds in the counters"
