"""Any image with cloud-init: Debian's own, made as cloud images are, boots and is measured on the lab's OpenStack.

Emulated, such a guest takes minutes to boot, so these tests are left out of `make test-openstack`:
`pytest -m cloud_image` runs them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from debian_cloud_image import build, serving, uploaded
from live_cloud import MARKS, cephfit, everything, target_text, until
from openstack.connection import Connection

from cephfit.core.values.sample import Sample, State
from cephfit.lab.cluster import Lab
from cephfit.results.store.sample_store import Store

pytestmark = [*MARKS, pytest.mark.cloud_image, pytest.mark.timeout(2400)]

SWEEP = """
schema_version: 1
name: debian
configurations: {A: {}}
measurement: {sizes: [4K], patterns: [randread], clients: 1, volume_size: 16M, repeats: 1, ramp_seconds: 0.5,
  run_seconds: 10, max_attempts: 5, cache: warm, seed: 3}
"""


@pytest.fixture(scope="module")
def gateway(openstack_lab: Lab) -> str:
    """This machine's address on the guests' network."""
    assert openstack_lab.cloud is not None
    return openstack_lab.cloud.layout.gateway


@pytest.fixture(scope="module")
def images(
    openstack_lab: Lab, gateway: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, str, str]]:
    """The mirror's folder, and the names of the images without and with fio."""
    from cephfit.lab.openstack.cloud_resources import connect

    built = build(tmp_path_factory.mktemp("debian"), mirror_host=gateway)
    assert openstack_lab.cloud is not None
    cloud = connect(openstack_lab.cloud.layout)
    with uploaded(cloud, built, "cephfit-tests-debian") as (bare, with_fio):
        yield built.mirror, bare, with_fio
    cloud.close()


def measured(cloud: Connection, folder: Path, image: str, **more: str) -> list[Sample]:
    """The good samples of a sweep in guests of an image; nothing is left."""
    before = everything(cloud)
    file, store = folder / "debian.yaml", str(folder / "debian.sqlite")
    file.write_text(SWEEP)
    target = target_text(cloud, image=image, flavor="cephfit.small", volume_type="ssd", **more)
    done = cephfit("sweep", "run", str(file), "--target", target, "--store", store)
    assert done.returncode == 0, done.stderr
    until(lambda: everything(cloud) == before)
    with Store.open(store) as opened:
        (run,) = opened.runs()
        return [sample for sample in opened.samples(run.run_id) if sample.state is State.OK]


def test_a_cloud_image_with_fio_is_measured(
    cloud_admin: Connection, images: tuple[Path, str, str], tmp_path: Path
) -> None:
    (sample,) = measured(cloud_admin, tmp_path, images[2])
    assert sample.metrics is not None
    assert sample.metrics.iops > 0
    assert sample.evidence["results_by"] == "server"
    assert "hypervisor" in sample.evidence["independent_count"]["source"]


def test_a_cloud_image_without_fio_gets_it_from_its_distribution(
    cloud_user: Connection, gateway: str, images: tuple[Path, str, str], tmp_path: Path
) -> None:
    with serving(images[0], gateway):
        (sample,) = measured(cloud_user, tmp_path, images[1])
    assert sample.metrics is not None
    assert sample.metrics.iops > 0


def test_a_guest_that_can_get_no_fio_says_so(
    cloud_user: Connection, images: tuple[Path, str, str], tmp_path: Path
) -> None:
    before = everything(cloud_user)
    file = tmp_path / "debian.yaml"
    file.write_text(SWEEP)
    target = target_text(cloud_user, image=images[1], flavor="cephfit.small", volume_type="ssd")
    done = cephfit("sweep", "run", str(file), "--target", target, "--store", str(tmp_path / "debian.sqlite"))
    assert done.returncode == 2
    assert "its image has no fio, and none could be installed: E: " in done.stderr
    assert "Traceback" not in done.stderr
    assert cephfit("restore", "--target", target).returncode == 0
    until(lambda: everything(cloud_user) == before)


def test_a_cloud_image_that_nobody_reaches_tells_its_results(
    cloud_user: Connection, images: tuple[Path, str, str], tmp_path: Path
) -> None:
    (sample,) = measured(cloud_user, tmp_path, images[2], results="signal")
    assert sample.evidence["results_by"] == "signal"
