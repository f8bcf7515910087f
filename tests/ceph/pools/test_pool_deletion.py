"""Deletion of pools is permitted only while it lasts, and never with a single permitted pool."""

import errno
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from small_cluster import SmallCluster

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.ceph_health import CephHealth
from cephfit.ceph.cluster_adapters import ClusterAdapters
from cephfit.ceph.crush.live_map import LiveMap
from cephfit.ceph.delivery.client_conf import ClientAccess
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.ceph.pools.declared_pools import DeclaredPools
from cephfit.cli.main import cephfit
from cephfit.core.errors import InputError
from cephfit.core.journal import Journal
from cephfit.core.protocols import NullProgress
from cephfit.targets.ceph.ceph_target import CephTarget
from cephfit.targets.ceph.change_scopes import WholeCluster

LEAVE = ("mon", "mon_allow_pool_delete")
GOLD = {"gold": {"size": "3"}}
CRUSH_MAP = """\
device 0 osd.0
type 0 osd
type 1 root
root default {
  id -1
  alg straw2
  hash 0
  item osd.0 weight 1.00000
}
"""


class Monitors(SmallCluster):
    """Has a pool ``gold`` that it may refuse to delete."""

    def __init__(self) -> None:
        super().__init__()
        self.pools = ["vms", "gold"]
        self.leave_at_deletion = ""

    def exchange(self, prefix: str, payload: bytes = b"", /, **_: Any) -> bytes:
        assert (prefix, payload) == ("osd getcrushmap", b""), "none of the map is ours"
        return LiveMap.from_text(CRUSH_MAP).binary

    def _df(self) -> Any:
        return {"pools": [{"name": name, "stats": {"stored": 0}} for name in self.pools]}

    def _osd_lspools(self) -> Any:
        return [{"poolname": name, "poolnum": n} for n, name in enumerate(self.pools)]

    def _osd_erasure_code_profile_ls(self) -> Any:
        return []

    def _osd_pool_rm(self, pool: str, pool2: str, yes_i_really_really_mean_it: bool) -> None:
        self.leave_at_deletion = self.store.get(LEAVE, "")
        if self.refuses.get("deletion"):
            raise RefusedError("it is a tier of another pool", where="mon", code=errno.EBUSY)
        self.pools.remove(pool)


@pytest.fixture
def monitors() -> Monitors:
    return Monitors()


def changes_of(monitors: SmallCluster, journal: Journal) -> WholeCluster:
    around: Any = None
    return WholeCluster(
        monitors,
        Catalogue(monitors),
        journal,
        volumes=around,
        health=CephHealth(monitors),
        adapters=ClusterAdapters(greater=around),
        progress=NullProgress(),
    )


def gold_in(folder: Path, changes: WholeCluster) -> DeclaredPools:
    """The declared pools, with ``gold`` already created."""
    journal = Journal(folder / "pools.jsonl")
    journal.note("pool", "gold", None)
    return changes.declared_pools(journal)


@pytest.mark.ceph
@pytest.mark.parametrize("was", [None, "false"])
def test_the_monitors_allow_deletions_only_while_pools_are_deleted(
    was: str | None, monitors: Monitors, tmp_path: Path
) -> None:
    if was is not None:
        monitors.store[LEAVE] = was
    journal = Journal(tmp_path / "journal.jsonl")
    done = gold_in(tmp_path, changes_of(monitors, journal)).remove(GOLD)
    assert (done, monitors.pools) == (("pool gold is deleted",), ["vms"])
    assert monitors.leave_at_deletion == "true"
    assert monitors.store.get(LEAVE) == was
    assert journal.entries() == ()


def test_they_do_not_allow_them_any_more_after_one_failed(monitors: Monitors, tmp_path: Path) -> None:
    monitors.refuses["deletion"] = "yes"
    pools = gold_in(tmp_path, changes_of(monitors, Journal(tmp_path / "journal.jsonl")))
    with pytest.raises(RefusedError, match="a tier of another pool"):
        pools.remove(GOLD)
    assert (monitors.leave_at_deletion, monitors.store) == ("true", {})
    monitors.refuses["config rm mon mon_allow_pool_delete"] = "not now"
    with pytest.raises(RefusedError, match="a tier of another pool; mon: not now"):
        pools.remove(GOLD)


def test_nor_after_a_sweep_could_not_delete_its_own(monitors: Monitors, tmp_path: Path) -> None:
    monitors.refuses["deletion"] = "yes"
    journal = Journal(tmp_path / "journal.jsonl")
    journal.note("pool", "gold", None)
    with pytest.raises(RefusedError, match="a tier of another pool"):
        changes_of(monitors, journal).delete_pools()
    assert (monitors.leave_at_deletion, monitors.store) == ("true", {})


@pytest.mark.ceph
@pytest.mark.parametrize("mender", ["restore", "pools"])
def test_what_a_killed_process_left_allowed_is_taken_back(mender: str, monitors: Monitors, tmp_path: Path) -> None:
    with pytest.raises(KeyError), changes_of(monitors, Journal(tmp_path / "j")).deletion.allowed():
        monitors.refuses["config rm mon mon_allow_pool_delete"] = "the process is dead"
        raise KeyError
    monitors.refuses.clear()
    assert monitors.store == {LEAVE: "true"}
    changes = changes_of(monitors, Journal(tmp_path / "j"))
    assert [undoing.what for undoing in changes.undoings()] == ["option mon_allow_pool_delete of mon"]
    if mender == "restore":
        changes.take_back(pools=True)
    else:
        changes.declared_pools(Journal(tmp_path / "pools.jsonl")).remove(GOLD)
    assert monitors.store == {}


@pytest.mark.ceph
def test_so_is_what_an_earlier_version_kept_with_the_declared_pools(monitors: Monitors, tmp_path: Path) -> None:
    monitors.store[LEAVE] = "true"
    journal = Journal(tmp_path / "pools.jsonl")
    journal.note("allow deletion", "mon_allow_pool_delete", "false")
    changes_of(monitors, Journal(tmp_path / "j")).declared_pools(journal).remove(GOLD)
    assert monitors.store == {LEAVE: "false"}
    assert not journal.path.exists()


def test_no_pools_are_declared_where_only_one_may_be_touched(monitors: Monitors, tmp_path: Path) -> None:
    anything: Any = monitors
    target = CephTarget(
        "ceph:small",
        admin=monitors,
        images=anything,
        access=ClientAccess("admin", ""),
        folder=tmp_path,
        journal=Journal(tmp_path / "journal.jsonl"),
        adapters=ClusterAdapters(greater=anything),
        for_change=True,
        only_pool="bench",
    )
    with pytest.raises(InputError, match="only pool bench may be changed, so no pools are created"):
        target.declared_pools()


@pytest.mark.parametrize(
    ("argv", "option"),
    [
        (("pools", "apply", "f", "--apply"), "--only-pool bench"),
        (("pools", "remove", "f", "--apply"), "--only-pool bench"),
        (("pools", "apply", "f"), "--pg-num 8"),
        (("pools", "remove", "f"), "--restarts cephadm"),
        (("pools", "show"), "--take-over"),
        (("params", "tree"), "--crush-rule ssd"),
    ],
)
def test_options_that_would_do_nothing_are_not_taken(argv: tuple[str, ...], option: str) -> None:
    done = CliRunner().invoke(cephfit, [*argv, "--target", "ceph", *option.split()])
    assert done.exit_code == 2
    assert re.search(rf"No such option:? '?{option.split()[0]}\b", done.output)
