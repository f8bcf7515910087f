"""The guests' image in Glance, on the lab's OpenStack: first upload, after a kill, another build, other images."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from live_cloud import MARKS, cephfit, started, until
from openstack.connection import Connection

from cephfit.cloud.guests import image_upload
from cephfit.cloud.guests.guest_image import GuestImage
from cephfit.core.units import MIB

pytestmark = [*MARKS, pytest.mark.timeout(600)]

NAME = "cephfit-tests-image"
PARTS = {NAME, f"{NAME}-kernel", f"{NAME}-ramdisk"}


def build(folder: Path, *, ramdisk: bytes = b"ramdisk") -> Path:
    """An image's files without an image in them: it is never booted here."""
    document = {"folder": ".", "kernel_release": "6.1.0-1", "fio_version": "fio-3.33", "schema_version": 1}
    (folder / "image.json").write_text(json.dumps(document))
    for name, content in (("vmlinuz", b"kernel"), ("initrd.gz", ramdisk), ("disk.raw", b"disk")):
        (folder / name).write_bytes(content)
    return folder


def images(cloud: Connection) -> dict[str, Any]:
    """This project's images by name, each of which is there once."""
    found = [one for one in cloud.image.images(owner=cloud.current_project_id) if one.name in PARTS]
    assert len({one.name for one in found}) == len(found), found
    return {one.name: one for one in found}


def uploaded(cloud: Connection, folder: Path) -> dict[str, Any]:
    done = cephfit("image", "upload", str(folder), "--cloud", str(cloud.config.name), "--name", NAME, "--json")
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


@pytest.fixture
def removed(cloud_user: Connection) -> Iterator[None]:
    """`cephfit image remove` takes away what is there in the end."""
    yield
    done = cephfit("image", "remove", NAME, "--cloud", str(cloud_user.config.name), "--json")
    assert done.returncode == 0, done.stderr
    assert images(cloud_user) == {}


def test_an_image_is_sent_once_and_another_build_takes_its_place(
    cloud_user: Connection, removed: None, tmp_path: Path
) -> None:
    folder = build(tmp_path)
    first = uploaded(cloud_user, folder)
    assert set(first["changed"]) == PARTS
    before = images(cloud_user)
    assert {one.status for one in before.values()} == {"active"}
    assert uploaded(cloud_user, folder) == {"name": NAME, "id": first["id"], "changed": []}
    again = cephfit("image", "upload", str(folder), "--cloud", str(cloud_user.config.name), "--name", NAME)
    assert "already exists there" in again.stdout

    build(folder, ramdisk=b"another ramdisk")
    second = uploaded(cloud_user, folder)
    assert second["id"] == first["id"], "what targets and stacks name stays"
    assert set(second["changed"]) == {NAME, f"{NAME}-ramdisk"}
    after = images(cloud_user)
    assert after.keys() == PARTS, "the former RAM disk is gone"
    assert after[NAME].ramdisk_id == after[f"{NAME}-ramdisk"].id != before[f"{NAME}-ramdisk"].id
    assert after[NAME].kernel_id == before[f"{NAME}-kernel"].id


def test_what_a_killed_upload_left_is_replaced(
    cloud_user: Connection, removed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at once: another upload may be running. The ten minutes are skipped here."""
    folder = build(tmp_path)
    with (folder / "initrd.gz").open("wb") as ramdisk:
        ramdisk.truncate(512 * MIB)
    with started("image", "upload", str(folder), "--cloud", str(cloud_user.config.name), "--name", NAME) as killed:
        left = until(lambda: images(cloud_user).get(f"{NAME}-ramdisk"))
        killed.send_signal(signal.SIGKILL)
    assert left.status != "active"
    build(folder)
    refused = cephfit("image", "upload", str(folder), "--cloud", str(cloud_user.config.name), "--name", NAME)
    assert refused.returncode == 2
    assert f"openstack image delete {left.id}" in refused.stderr
    monkeypatch.setattr(image_upload, "_UNDER_WAY_SECONDS", 0.0)
    assert set(image_upload.upload(cloud_user, GuestImage.read(folder), name=NAME).changed) == {
        NAME,
        f"{NAME}-ramdisk",
    }
    found = images(cloud_user)
    assert {name: one.status for name, one in found.items()} == dict.fromkeys(PARTS, "active")
    assert found[f"{NAME}-ramdisk"].id != left.id


def test_others_images_are_neither_taken_nor_touched(
    cloud_admin: Connection, cloud_user: Connection, removed: None, tmp_path: Path
) -> None:
    """Another project's public image of the same name: the name alone would be ambiguous."""
    folder = build(tmp_path)
    theirs = []
    try:
        for name in (f"{NAME}-kernel", NAME):
            made = cloud_admin.image.create_image(
                name,
                filename=str(folder / "disk.raw"),
                disk_format="raw",
                container_format="bare",
                visibility="public",
                allow_duplicates=True,
            )
            theirs.append(made.id)
            if name != NAME:
                assert set(uploaded(cloud_user, folder)["changed"]) == PARTS
                kernel = images(cloud_user)[f"{NAME}-kernel"]
                assert kernel.id != made.id
                assert images(cloud_user)[NAME].kernel_id == kernel.id
        refused = cephfit("image", "upload", str(folder), "--cloud", str(cloud_user.config.name), "--name", NAME)
        assert refused.returncode == 2
        assert f"image={theirs[1]}" in refused.stderr
        assert cephfit("image", "remove", NAME, "--cloud", str(cloud_user.config.name)).returncode == 0
        assert {cloud_admin.image.get_image(one).status for one in theirs} == {"active"}
    finally:
        for one in theirs:
            cloud_admin.image.delete_image(one)
