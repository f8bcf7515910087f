"""Undoing tries everything: failures are listed at the end, and do not stop the rest."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from small_cluster import SmallCluster

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.ceph_health import CephHealth
from cephfit.ceph.cluster_adapters import ClusterAdapters
from cephfit.ceph.delivery.client_conf import ClientAccess
from cephfit.ceph.environment.kernel_values import HostFile, HostFiles
from cephfit.ceph.host_access import Hosts
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import ClusterError, HostError, StoreError
from cephfit.core.journal import Journal
from cephfit.core.protocols import NullProgress
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.targets.ceph.ceph_target import CephTarget
from cephfit.targets.ceph.change_scopes import WholeCluster

BACKFILLS = Configuration("B", (Setting(Partition.CEPH, "osd", "osd_max_backfills", 3),))


@pytest.fixture
def cluster() -> SmallCluster:
    return SmallCluster()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


class Around:
    """Settings around Ceph that cannot be restored: a host does not answer."""

    def release(self, clients: Sequence[Any]) -> None:
        pass

    def restore(self) -> None:
        raise HostError("no answer in 30 s", where="storage2")


def changes_of(cluster: SmallCluster, journal: Journal) -> WholeCluster:
    around: Any = Around()
    return WholeCluster(
        cluster,
        Catalogue(cluster),
        journal,
        volumes=around,
        health=CephHealth(cluster),
        adapters=ClusterAdapters(greater=around),
        progress=NullProgress(),
    )


def left(journal: Journal) -> list[str]:
    return [f"{entry.kind} {entry.place}" for entry in journal.entries()]


def test_of_several_errors_each_is_named() -> None:
    tried = ErrorCollector()

    def fail(where: str) -> None:
        raise HostError(f"{where} is away", where=where, remedy="go there")

    assert tried.make(lambda: None)
    assert not tried.make(lambda: fail("h1"))
    assert not tried.make(lambda: fail("h2"))
    with pytest.raises(HostError, match="2 steps failed: h1: h1 is away; h2: h2 is away") as error:
        tried.end()
    assert error.value.remedy == "go there"
    ErrorCollector().end()


def test_a_host_that_is_away_does_not_keep_the_clusters_options_back(
    cluster: SmallCluster, journal: Journal, tmp_path: Path
) -> None:
    around: Any = Around()
    images: Any = cluster
    target = CephTarget(
        "ceph:small",
        admin=cluster,
        images=images,
        access=ClientAccess("admin", ""),
        folder=tmp_path,
        journal=journal,
        adapters=ClusterAdapters(greater=around),
        for_change=True,
    )
    journal.note("host file", "storage2:/proc/sys/vm/swappiness", "60")
    changes = target._changes
    assert isinstance(changes, WholeCluster)
    changes.settings.apply(BACKFILLS)
    changes.settings.put("mon", "mon_allow_pool_delete", "true")
    with pytest.raises(HostError, match="no answer in 30 s"):
        target.reset()
    assert cluster.store == {}
    assert left(journal) == ["host file storage2:/proc/sys/vm/swappiness"]
    around.restore = lambda: None
    with pytest.raises(StoreError, match=r"1 changes are not undone yet: host file storage2:/proc/sys/vm/swap"):
        target.reset()


def test_a_pool_that_cannot_be_deleted_does_not_keep_options_back(cluster: SmallCluster, journal: Journal) -> None:
    changes = changes_of(cluster, journal)
    changes.settings.apply(BACKFILLS)
    journal.note("pool", "cephfit-default", None)
    cluster.refuses["osd lspools"] = "no such right"
    with pytest.raises(RefusedError, match="no such right"):
        changes.take_back(pools=True)
    assert cluster.store == {}
    assert left(journal) == ["pool cephfit-default"]


def test_an_option_that_cannot_be_restored_does_not_block_others(cluster: SmallCluster, journal: Journal) -> None:
    changes = changes_of(cluster, journal)
    changes.settings.put("osd.0", "osd_max_backfills", "3")
    changes.settings.put("osd.1", "osd_max_backfills", "3")
    cluster.refuses["config rm osd.0 osd_max_backfills"] = "it is mine now"
    with pytest.raises(ClusterError, match="it is mine now"):
        changes.take_back(pools=True)
    assert list(cluster.store) == [("osd.0", "osd_max_backfills")]
    assert "config osd.0 osd_max_backfills" in left(journal)


class SomeHost:
    """A machine with files in memory; nothing at all if it is away."""

    def __init__(self, name: str, files: dict[str, str]) -> None:
        self.name = name
        self.files = files
        self.is_away = False

    def read_all(self, paths: Sequence[PurePosixPath]) -> dict[PurePosixPath, str]:
        if self.is_away:
            raise HostError("no answer", where=self.name)
        return {path: self.files[str(path)] for path in paths if str(path) in self.files}

    def write(self, path: PurePosixPath, text: str) -> None:
        self.files[str(path)] = text


class SomeHosts(Hosts):
    def __init__(self, *hosts: SomeHost) -> None:
        super().__init__()
        self._by_name = {host.name: host for host in hosts}

    def named(self, name: str) -> Any:
        return self._by_name[name]


def test_values_of_other_hosts_are_restored_while_one_is_unreachable(journal: Journal) -> None:
    path = "/proc/sys/vm/swappiness"
    one, two = SomeHost("h1", {path: "60"}), SomeHost("h2", {path: "60"})
    files = HostFiles(SomeHosts(one, two), journal)
    files.apply({HostFile("h1", path): "1", HostFile("h2", path): "1"})
    one.is_away = True
    with pytest.raises(HostError, match="no answer"):
        files.restore()
    assert two.files[path] == "60"
    assert left(journal) == [f"host file h1:{path}"]
    one.is_away = False
    files.restore()
    assert one.files[path] == "60"
    assert left(journal) == []
