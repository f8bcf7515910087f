"""What settings of an OSD's store come to."""

import pytest

from cephfit.ceph.environment.scopes import OsdStore, store_of
from cephfit.core.errors import InputError
from cephfit.core.values.configuration import Value


@pytest.mark.parametrize(
    ("settings", "store"),
    [
        ({}, OsdStore()),
        ({"filesystem": "btrfs"}, OsdStore("filestore", "btrfs")),
        ({"objectstore": "filestore"}, OsdStore("filestore", "xfs")),
        ({"journal": "ssd"}, OsdStore("filestore", "xfs", journal="ssd")),
        ({"db": "ssd"}, OsdStore(db="ssd")),
        ({"filesystem": "ext4", "mount_options": "noatime"}, OsdStore("filestore", "ext4", "", "noatime")),
    ],
)
def test_a_store_is_what_the_settings_say_and_the_usual_for_the_rest(
    settings: dict[str, Value], store: OsdStore
) -> None:
    assert store_of(settings, OsdStore()) == store


def test_another_file_system_does_not_inherit_options_of_the_first() -> None:
    first = OsdStore("filestore", "xfs", "-i size=1024", "noatime", "ssd")
    assert store_of({"mount_options": "inode64"}, first) == OsdStore(
        "filestore", "xfs", "-i size=1024", "inode64", "ssd"
    )
    assert store_of({"filesystem": "btrfs"}, first) == OsdStore("filestore", "btrfs")
    assert store_of({"objectstore": "bluestore"}, first) == OsdStore()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"filesystem": "zfs"}, "FileStore does not support zfs"),
        ({"objectstore": "bluestore", "filesystem": "xfs"}, "filesystem applies to filestore"),
        ({"filesystem": "xfs", "db": "ssd"}, "db applies to bluestore"),
        ({"objectstore": "memstore"}, "'memstore' is not an object store"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Value], why: str) -> None:
    with pytest.raises(InputError, match=why):
        store_of(settings, OsdStore())
