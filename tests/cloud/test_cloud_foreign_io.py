"""Others' volumes in the pool that a cloud's guests are measured in, on the lab's OpenStack and its Ceph."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from live_cloud import MARKS, cephfit, everything, target_text, until
from openstack.connection import Connection
from rbd_bench import writing

from cephfit.core.values.sample import State
from cephfit.lab.cluster import Lab
from cephfit.results.store.sample_store import Store

pytestmark = [*MARKS, pytest.mark.timeout(900)]

IMAGE = "volumes-hdd/volume-of-another-user"
SWEEP = """
schema_version: 1
name: foreign
measurement: {sizes: [4K], patterns: [randread], clients: 1, volume_size: 32M, repeats: 1, ramp_seconds: 0.5,
  run_seconds: 15, iodepth: 4, max_attempts: 1, cache: warm, seed: 3}
"""


@contextmanager
def foreign_load(lab: Lab) -> Iterator[None]:
    """Read a foreign volume in the pool of the type hdd during the block."""
    rbd = ["rbd", "--conf", str(lab.conf)]
    subprocess.run([*rbd, "create", "--size", "64M", IMAGE], check=True, capture_output=True)
    try:
        with subprocess.Popen(
            [*rbd, *writing(IMAGE)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield
            finally:
                process.kill()
    finally:
        # The killed one's watch on the image lasts half a minute.
        until(
            lambda: subprocess.run([*rbd, "remove", "--no-progress", IMAGE], capture_output=True).returncode == 0
        )


@pytest.mark.cloud_whole
@pytest.mark.takes(seconds=190)
def test_a_foreign_volume_of_the_same_type_makes_samples_invalid_and_ours_do_not(
    openstack_lab: Lab, cloud_admin: Connection, tmp_path: Path
) -> None:
    before = everything(cloud_admin)
    file = tmp_path / "foreign.yaml"
    file.write_text(SWEEP)
    target = target_text(cloud_admin, lab=str(openstack_lab.folder))
    store = str(tmp_path / "foreign.sqlite")
    with foreign_load(openstack_lab):
        cephfit("sweep", "run", str(file), "--target", target, "--store", store, "--keep")
    with Store.open(store) as opened:
        (run,) = opened.runs()
        (disturbed,) = opened.samples(run.run_id)
    assert disturbed.state is State.INVALID
    assert "foreign clients did " in disturbed.reason
    assert f"(images {IMAGE} " in disturbed.reason
    alone = str(tmp_path / "alone.sqlite")
    done = cephfit("sweep", "run", str(file), "--target", target, "--store", alone)
    assert done.returncode == 0, done.stderr
    with Store.open(alone) as opened:
        (run,) = opened.runs()
        (undisturbed,) = opened.samples(run.run_id)
    assert undisturbed.state is State.OK, undisturbed.reason
    assert undisturbed.metrics is not None and undisturbed.metrics.iops > 50, "more than foreign I/O may do"
    until(lambda: everything(cloud_admin) == before)
