"""Parts of ours are put into a cluster's CRUSH map and taken out, while others change it too."""

import errno
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from crush_maps import two_classes

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.crush import map_text
from cephfit.ceph.crush.data_placement import Devices, Placement
from cephfit.ceph.crush.live_map import LiveMap
from cephfit.ceph.crush.map_change import CrushChanges
from cephfit.ceph.crush.map_proposal import Wish
from cephfit.core.errors import ClusterError
from cephfit.core.journal import Journal

pytestmark = pytest.mark.skipif(shutil.which("osdmaptool") is None, reason="needs ceph-base's CRUSH programs")

FAST = Wish("fast", Placement(Devices(device_class="ssd")), 3)
SLOW = Wish("slow", Placement(Devices(device_class="hdd")), 3)


class SharedMap:
    """Monitors that keep a CRUSH map and its version, and an administrator who may change it as it is read."""

    def __init__(self, tmp_path: Path) -> None:
        self.binary = two_classes().binary
        self.version = 7
        self.others: bytes | None = None
        """Set by another client right after the next reading."""
        made = tmp_path / "osdmap"
        subprocess.run(("osdmaptool", "--createsimple", "6", str(made)), check=True, capture_output=True)
        self._osd_map = made.read_bytes()

    def command(self, prefix: str, /, **_: Any) -> Any:
        if prefix == "osd crush rule ls":
            return list(LiveMap(self.binary).rules)
        assert prefix == "osd dump"
        return {"crush_version": self.version, "pools": [], "pool_max": 1, "osds": []}

    def exchange(self, prefix: str, payload: bytes = b"", /, **guard: Any) -> bytes:
        if prefix == "osd getcrushmap":
            read = self.binary
            if self.others is not None:
                self.binary, self.others, self.version = self.others, None, self.version + 1
            return read
        if prefix == "osd getmap":
            return self._osd_map
        assert prefix == "osd setcrushmap"
        if guard["prior_version"] != self.version:
            raise RefusedError(f"prior_version {guard['prior_version']} != crush version", code=errno.EPERM)
        self.binary, self.version = payload, self.version + 1
        return b""

    def tell(self, daemon: str, prefix: str, /, **_: Any) -> Any:
        raise AssertionError("no daemon is asked")

    def close(self) -> None:
        pass


@pytest.fixture
def cluster(tmp_path: Path) -> SharedMap:
    return SharedMap(tmp_path)


@pytest.fixture
def changes(cluster: SharedMap, tmp_path: Path) -> CrushChanges:
    return CrushChanges(cluster, Journal(tmp_path / "journal"))


def with_a_new_host(binary: bytes) -> bytes:
    """What an administrator makes of a map: a host more."""
    live = LiveMap(binary)
    more = "host newcomer {\n\tid -77\n\talg straw2\n\thash 0\n}\n\n# rules"
    assert "# rules" in live.text
    return LiveMap.from_text(live.text.replace("# rules", more, 1)).binary


def test_the_map_is_as_it_was_after_restore(cluster: SharedMap, changes: CrushChanges) -> None:
    before = LiveMap(cluster.binary).digest
    changes.ensure([FAST])
    assert "fast" in LiveMap(cluster.binary).rules
    changes.restore()
    assert LiveMap(cluster.binary).digest == before


@pytest.mark.parametrize("all_of_it", [True, False])
def test_a_concurrent_change_of_another_client_stays(
    cluster: SharedMap, changes: CrushChanges, all_of_it: bool
) -> None:
    changes.ensure([FAST, SLOW])
    cluster.others = with_a_new_host(cluster.binary)
    with pytest.raises(ClusterError, match="another client changed the CRUSH map at this moment"):
        changes.restore() if all_of_it else changes.remove(["fast"])
    assert "newcomer" in LiveMap(cluster.binary).buckets
    changes.restore()
    live = LiveMap(cluster.binary)
    assert "newcomer" in live.buckets
    assert not {"fast", "slow"} & set(live.rules)


def without_the_rule(cluster: SharedMap, rule: str) -> None:
    """Remove a rule as monitors do since 20.2.4 with the last erasure-coded pool that used it."""
    live = LiveMap(cluster.binary)
    text = map_text.without(map_text.exact(live.text, live.document), [rule])
    cluster.binary, cluster.version = LiveMap.from_text(text).binary, cluster.version + 1


def test_rules_that_the_monitors_remove_with_a_pool_are_there_again(
    cluster: SharedMap, changes: CrushChanges
) -> None:
    original = cluster.binary
    with changes.keeping_rules():
        without_the_rule(cluster, "replicated_rule")  # the administrator's, as all of this map
        assert not LiveMap(cluster.binary).rules
    assert cluster.binary == original

    changes.ensure([FAST, SLOW])
    injected = cluster.binary
    with changes.keeping_rules():
        without_the_rule(cluster, "fast")
    assert cluster.binary == injected
    changes.restore()
    assert cluster.binary == original


def test_a_kept_rule_is_put_into_a_map_that_another_client_changed(
    cluster: SharedMap, changes: CrushChanges
) -> None:
    before = LiveMap(cluster.binary)
    with changes.keeping_rules():
        without_the_rule(cluster, "replicated_rule")
        cluster.binary, cluster.version = with_a_new_host(cluster.binary), cluster.version + 1
        theirs = LiveMap(cluster.binary)
    after = LiveMap(cluster.binary)
    assert after.document["rules"] == before.document["rules"]
    assert "newcomer" in after.buckets
    assert after.buckets == theirs.buckets, "with all digits of the weights"


def test_a_killed_deletion_does_not_lose_a_rule(cluster: SharedMap, changes: CrushChanges, tmp_path: Path) -> None:
    original = cluster.binary
    with pytest.raises(KeyError), changes.keeping_rules():
        without_the_rule(cluster, "replicated_rule")
        raise KeyError
    assert cluster.binary != original
    journal = Journal(tmp_path / "journal")
    CrushChanges(cluster, journal).restore()
    assert (cluster.binary, journal.entries()) == (original, ())
