"""OSDs restarted one by one where one is down, or does not come back: what is done first, and what is kept."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_cluster import OPTIONS, Daemons, SmallCluster

from cephfit.ceph.ceph_health import CephHealth
from cephfit.ceph.cluster_adapters import ClusterAdapters, OsdsDownError
from cephfit.ceph.delivery import osd_restarts
from cephfit.ceph.delivery.osd_restarts import NooutFlags, OneByOne
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.ceph.pools.declared_pools import DeclaredPools
from cephfit.core.errors import ClusterError, HostError
from cephfit.core.journal import Journal
from cephfit.core.protocols import NullProgress
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.core.values.measurement import Step
from cephfit.targets.ceph.change_scopes import WholeCluster
from cephfit.targets.ceph.cluster_preview import applied_order, count_restarts, restarts_note

PATIENCE_SECONDS = 0.05
SHARDS = Configuration("shards", (Setting(Partition.CEPH, "osd", "osd_op_num_shards", 99),))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(osd_restarts, "_POLL_SECONDS", 0.001)


@pytest.fixture
def cluster() -> SmallCluster:
    return SmallCluster()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


def one_by_one(cluster: SmallCluster, journal: Journal, daemons: Daemons) -> OneByOne:
    return OneByOne(cluster, journal, daemons, progress=NullProgress(), patience_seconds=PATIENCE_SECONDS)


def whole(cluster: SmallCluster, journal: Journal, daemons: Daemons) -> WholeCluster:
    return WholeCluster(
        cluster,
        Catalogue(cluster),
        journal,
        volumes=None,  # type: ignore[arg-type]
        health=CephHealth(cluster),
        adapters=ClusterAdapters(greater=None, restarts=one_by_one(cluster, journal, daemons)),  # type: ignore[arg-type]
        progress=NullProgress(),
    )


def test_osds_that_are_down_start_first_without_a_check(cluster: SmallCluster, journal: Journal) -> None:
    cluster.stop(2)
    done: list[int] = []
    one_by_one(cluster, journal, Daemons(cluster)).restart([0, 1, 2], done.append)
    assert cluster.changes == [
        "restart osd.2",
        "may osd.0 stop?",
        "restart osd.0",
        "may osd.1 stop?",
        "restart osd.1",
    ]
    assert done == [2, 0, 1]
    assert cluster.flagged() == []


def test_each_is_done_when_it_is_up_not_when_all_are(cluster: SmallCluster, journal: Journal) -> None:
    done: list[int] = []
    with pytest.raises(OsdsDownError, match=r"osd\.1 did not come up") as error:
        one_by_one(cluster, journal, Daemons(cluster, lambda osd: osd != 1)).restart([0, 1, 2], done.append)
    assert done == [0]
    assert error.value.osds == (1,)
    assert "restart osd.2" not in cluster.changes, "no second one while one is down"


def test_an_osd_with_a_dead_disk_is_reported_and_does_not_block_others(
    cluster: SmallCluster, journal: Journal
) -> None:
    """osd.2 is down and out, its data lie elsewhere: the others may be restarted."""
    cluster.stop(2)
    cluster.osds[2]["in"] = 0
    done: list[int] = []
    with pytest.raises(OsdsDownError, match=r"osd\.2 did not come up"):
        one_by_one(cluster, journal, Daemons(cluster, lambda osd: osd != 2)).restart([0, 1, 2], done.append)
    assert done == [0, 1]


def test_a_removed_osd_does_not_block_others(cluster: SmallCluster, journal: Journal) -> None:
    done: list[int] = []
    one_by_one(cluster, journal, Daemons(cluster)).restart([0, 7], done.append)
    assert sorted(done) == [0, 7]


@pytest.mark.parametrize("when", ["before its turn", "while it is restarted", "instead of its restart"])
def test_an_osd_purged_during_the_restart_does_not_block_others(
    when: str, cluster: SmallCluster, journal: Journal
) -> None:
    class Purging(Daemons):
        def restart(self, osd: int) -> None:
            if (when, osd) in (("before its turn", 0), ("instead of its restart", 1)):
                cluster.purge(1)
            super().restart(osd)  # refused where there is no such OSD
            if (when, osd) == ("while it is restarted", 1):
                cluster.purge(1)

    done: list[int] = []
    one_by_one(cluster, journal, Purging(cluster)).restart([0, 1, 2], done.append)
    assert sorted(done) == [0, 1, 2]
    assert cluster.changes[-1] == "restart osd.2"
    assert not journal.entries()


class Unreachable(Daemons):
    """The way to the host of one of them is closed."""

    def restart(self, osd: int) -> None:
        if osd == 1:
            raise HostError("cannot be reached by SSH: no answer", remedy="see what `ssh -v h1 true` says")
        super().restart(osd)


def test_an_osd_that_was_not_restarted_is_reported_as_running(cluster: SmallCluster, journal: Journal) -> None:
    words = r"osd\.1 was not restarted and still runs unchanged: cannot be reached by SSH: no answer$"
    with pytest.raises(OsdsDownError) as error:
        one_by_one(cluster, journal, Unreachable(cluster)).restart([0, 1, 2], lambda osd: None)
    assert re.match(words, error.value.what)
    assert error.value.remedy == "see what `ssh -v h1 true` says"
    assert (error.value.osds, error.value.down) == ((1,), ())
    cluster.stop(1)
    with pytest.raises(
        OsdsDownError, match=r"osd\.1 was not restarted and is down: .*\n.*look at its log"
    ) as error:
        one_by_one(cluster, journal, Unreachable(cluster)).restart([1], lambda osd: None)
    assert error.value.down == (1,)


def test_options_are_reverted_without_an_osd_that_was_not_restarted(
    cluster: SmallCluster, journal: Journal
) -> None:
    changes = whole(cluster, journal, Unreachable(cluster))
    with pytest.raises(ClusterError, match="still runs unchanged") as error:
        changes.apply_configuration(SHARDS)
    assert error.value.what.endswith("no answer. The options were undone")
    assert "log" not in error.value.remedy
    assert cluster.store == {}
    assert changes.settings.restarts_due() == (0, 1, 2), "whatever comes next may need them"


def test_the_flag_stays_as_long_as_the_osd_is_down(cluster: SmallCluster, journal: Journal) -> None:
    with pytest.raises(OsdsDownError):
        one_by_one(cluster, journal, Daemons(cluster, lambda osd: False)).restart([2], lambda osd: None)
    NooutFlags(cluster, journal).take_back()
    assert cluster.flagged() == [2]
    cluster.start(2)
    NooutFlags(cluster, journal).take_back()
    assert cluster.flagged() == []
    assert not journal.entries()


def test_a_flag_of_another_client_stays(cluster: SmallCluster, journal: Journal) -> None:
    cluster.osds[2]["state"].append("noout")
    one_by_one(cluster, journal, Daemons(cluster)).restart([2], lambda osd: None)
    assert cluster.flagged() == [2]


def test_options_with_which_an_osd_does_not_start_are_taken_back_and_it_is_started(
    cluster: SmallCluster, journal: Journal
) -> None:
    """osd.1 cannot start with the option; osd.0 can, and keeps it until a restore."""
    daemons = Daemons(cluster, lambda osd: osd != 1 or not cluster.store)
    changes = whole(cluster, journal, daemons)
    with pytest.raises(ClusterError, match=r"osd\.1 did not come up.*undone, and it runs again"):
        changes.apply_configuration(SHARDS)
    assert cluster.store == {}
    assert all(osd["up"] for osd in cluster.osds)
    assert cluster.flagged() == []
    assert changes.settings.restarts_due() == (0, 2), "osd.0 ran with it; osd.2 was to be restarted"
    cluster.changes.clear()
    changes.take_back(pools=False)
    assert [word for word in cluster.changes if word.startswith("restart")] == ["restart osd.0", "restart osd.2"]
    assert not journal.entries()


def test_restore_heals_what_could_not_be_started_again(
    cluster: SmallCluster, journal: Journal, tmp_path: Path
) -> None:
    """osd.1 stays down at first; later it is repaired."""
    with pytest.raises(OsdsDownError, match=r"Undoing its options failed as well: osd\.1 did not") as error:
        whole(cluster, journal, Daemons(cluster, lambda osd: osd != 1)).apply_configuration(SHARDS)
    assert error.value.where == "osd.1"
    assert cluster.store == {}, "the options are undone all the same"
    assert cluster.flagged() == [1]
    again = Journal(tmp_path / "journal.jsonl")  # another process
    whole(cluster, again, Daemons(cluster)).take_back(pools=False)
    assert all(osd["up"] for osd in cluster.osds)
    whole(cluster, again, Daemons(cluster)).clean_up()
    assert cluster.flagged() == []
    again.finish()


def test_a_restart_continues_after_a_kill(cluster: SmallCluster, journal: Journal, tmp_path: Path) -> None:
    """The process ends while osd.1 is down for its restart, the option in the store, osd.0 restarted already."""

    class Killed(BaseException):
        pass

    def starts(osd: int) -> bool:
        if osd == 1:
            raise Killed
        return True

    with pytest.raises(Killed):
        whole(cluster, journal, Daemons(cluster, starts)).apply_configuration(SHARDS)
    assert cluster.flagged() == [1]
    again = Journal(tmp_path / "journal.jsonl")
    cluster.changes.clear()
    changes = whole(cluster, again, Daemons(cluster))
    changes.clean_up()
    assert cluster.flagged() == [1], "it is down still"
    changes.take_back(pools=False)
    assert cluster.changes[:2] == ["osd osd_op_num_shards gone", "restart osd.1"]
    assert cluster.flagged() == []
    again.finish()


def test_the_preview_counts_the_restarts_of_each_osd() -> None:
    """Two rounds of A, few, all: into few's options, into all's, and back to none at the end."""
    shards = {"osd_op_num_shards": "3"}
    startup = {"few": {0: shards}, "all": {0: {"osd_op_num_shards": "9"}, **dict.fromkeys(range(1, 9), shards)}}
    count = count_restarts(["A", "few", "all", "A", "few", "all"], startup)
    assert count.total() == 3 + 3 + 8 * 4
    assert restarts_note(count) == (
        "restarted over the whole sweep and its undoing: osd.0 6 times; "
        "osd.1, osd.2, osd.3, osd.4, osd.5, osd.6 and 2 more 4 times each"
    )
    assert restarts_note({}) == ""


def test_new_volumes_reset_the_options_between_rounds() -> None:
    """Otherwise the last configuration of a round may be the first one of the next without a restart."""
    steps = [Step(repeat, name, ()) for repeat in (0, 1) for name in ("skipped", "B")]

    def n_restarts(*, new_volumes: bool) -> int:
        sweep: Any = SimpleNamespace(steps=steps, measurement=SimpleNamespace(new_volumes=new_volumes))
        return count_restarts(applied_order(sweep, ["B"]), {"B": {0: {"osd_op_num_shards": "3"}}}).total()

    assert n_restarts(new_volumes=False) == 2
    assert n_restarts(new_volumes=True) == 4


@pytest.mark.parametrize("before", [{}, {("osd", "osd_op_num_shards"): "16"}])
def test_an_option_that_an_upgrade_removed_is_undone_without_a_restart(
    cluster: SmallCluster,
    journal: Journal,
    before: dict[tuple[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster.store.update(before)
    whole(cluster, journal, Daemons(cluster)).apply_options(SHARDS)
    monkeypatch.delitem(OPTIONS, "osd_op_num_shards")
    cluster.changes.clear()
    upgraded = whole(cluster, journal, Daemons(cluster))
    assert [u.what for u in upgraded.undoings()] == ["option osd_op_num_shards of osd"]
    upgraded.take_back(pools=False)
    assert cluster.store == before
    assert not any(text.startswith("restart") for text in cluster.changes)
    journal.finish()
    assert not journal.entries()


def test_the_data_of_adopted_pools_moves_after_the_restarts(
    cluster: SmallCluster, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While data moves, no OSD may stop."""
    monkeypatch.setattr(DeclaredPools, "give_back", lambda _: cluster.changes.append("give back"))
    changes = whole(cluster, journal, Daemons(cluster))
    changes.apply_options(SHARDS)
    cluster.changes.clear()
    changes.take_back(pools=True)
    assert [text for text in cluster.changes if not text.startswith("may")] == [
        "osd osd_op_num_shards gone", "restart osd.0", "restart osd.1", "restart osd.2", "give back",
    ]  # fmt: skip
