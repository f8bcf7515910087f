"""A permanent configuration without a cluster: killed at every write of its journals, watched, and undone."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, cycle, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from small_cluster import SmallCluster

from cephfit.ceph.cluster_adapters import ClusterAdapters
from cephfit.ceph.delivery.central_config import CONFIG
from cephfit.ceph.delivery.client_conf import ClientAccess
from cephfit.ceph.delivery.shell_commands import Present, parts_of
from cephfit.cli.cluster.apply_command import _print_plan
from cephfit.core.errors import CephfitError, ClusterError
from cephfit.core.journal import Journal
from cephfit.core.protocols import Health
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.targets.ceph import permanent_configuration
from cephfit.targets.ceph.ceph_target import CephTarget
from cephfit.targets.ceph.permanent_configuration import PermanentConfiguration, PermanentPlan

ORIGINAL = {"osd_max_backfills": "1", "osd_recovery_max_active": "2"}
FIRST = Configuration("first", (Setting(Partition.CEPH, "osd", "osd_max_backfills", 3),))
SECOND = Configuration("second", (Setting(Partition.CEPH, "osd", "osd_recovery_max_active", 4),))


class Killed(BaseException):
    """Ends a process at once."""


class Cluster:
    """Options of the section ``osd``, which stay over processes, and a journal's restore of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.options = dict(ORIGINAL)
        self.refuses = ""
        self.reports: Iterator[Health | CephfitError] = iter(())
        """Of its health, in order; then it is healthy."""

    def process(self) -> "Process":
        return Process(self)


class Process:
    """What one process has of the cluster: the fakes that ``PermanentConfiguration`` is built from."""

    name = "fake"

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.journal = Journal(cluster.folder / "journal.jsonl")
        self.settings = SimpleNamespace(read_back=lambda _: SimpleNamespace(mismatches=()))
        pools = SimpleNamespace(give_back=lambda but: None)
        self.declared_pools = lambda _journal: pools
        self.greater = SimpleNamespace(release_locks=lambda: None, apply=lambda *_: None)
        everything = cast(Any, self)
        self.permanent = PermanentConfiguration(
            everything,
            everything,
            cast(Any, None),
            self.journal,
            Journal(cluster.folder / "applied.jsonl"),
            changes=everything,
            greater=cast(Any, self.greater),
        )

    def plan(self, configuration: Configuration) -> PermanentPlan:
        earlier = self.permanent.in_place()
        return PermanentPlan(configuration, parts_of(configuration), "", (), (), None, Present(), earlier)

    def apply(self, configuration: Configuration) -> None:
        plan = self.plan(configuration)
        self.permanent.apply(plan)
        self.permanent.keep(plan)

    def restore(self, *, applied: bool) -> None:
        """Do as `cephfit restore`, where opening the target finishes moves."""
        self.permanent.finish_move()
        if applied:
            self.permanent.undo()
        else:
            self.reset()

    def command(self, prefix: str) -> Sequence[Mapping[str, str]]:
        assert prefix == "config dump"
        return [{"section": "osd", "name": k, "value": v} for k, v in self.cluster.options.items()]

    def apply_options(self, configuration: Configuration) -> tuple[int, ...]:
        """Restore what another configuration changed, and change the options."""
        required = {s.key: str(s.value) for s in configuration.settings}
        for entry in self.journal.entries(CONFIG):
            key = entry.place.partition(" ")[2]
            if key not in required:
                self.cluster.options[key] = entry.was
                self.journal.forget(CONFIG, entry.place)
        for key, value in required.items():
            if key == self.cluster.refuses:
                raise ClusterError(f"{key} is refused")
            self.journal.note(CONFIG, f"osd {key}", self.cluster.options[key])
            self.cluster.options[key] = value
        return ()

    def health(self) -> Health:
        found = next(self.cluster.reports, Health(True))
        if isinstance(found, CephfitError):
            raise found
        return found

    def unsupported(self, _configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        return {}

    def expect_new_pgs(self) -> None:
        pass

    def reset(self) -> None:
        for entry in self.journal.entries(CONFIG):
            self.cluster.options[entry.place.partition(" ")[2]] = entry.was
            self.journal.forget(CONFIG, entry.place)
        self.journal.finish()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def killed_at_each_write(
    monkeypatch: pytest.MonkeyPatch, folder: Path, act: Callable[[Cluster], None]
) -> Iterator[Cluster]:
    """Yield clusters, each after ``act`` was killed one write or removal of a journal's file later."""
    for n in range(100):
        (folder / str(n)).mkdir()
        cluster, left, has_ended = Cluster(folder / str(n)), n, False

        def dying(original: Callable[..., Any]) -> Callable[..., Any]:
            def write(*arguments: Any) -> Any:
                nonlocal left
                if not left:
                    raise Killed
                left -= 1
                return original(*arguments)

            return write

        with monkeypatch.context() as patched:
            patched.setattr(Journal, "_append", dying(Journal._append))
            patched.setattr(Journal, "finish", dying(Journal.finish))
            try:
                act(cluster)
                has_ended = True
            except Killed:
                pass
        yield cluster
        if has_ended:
            assert n > 3
            return
    raise AssertionError("it never ends")


def test_a_killed_apply_is_undone_or_stays_and_is_undone_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    states = []
    for cluster in killed_at_each_write(monkeypatch, tmp_path, lambda c: c.process().apply(FIRST)):
        cluster.process().restore(applied=False)
        name = cluster.process().permanent.in_place()
        assert cluster.options["osd_max_backfills"] == {"": "1", "first": "3"}[name]
        if not name:
            cluster.options["osd_max_backfills"] = "8"  # an admin sets it
        cluster.process().restore(applied=True)
        assert cluster.options["osd_max_backfills"] == ("1" if name else "8")
        assert not list(cluster.folder.glob("*.jsonl"))
        states.append(name)
    assert states == sorted(states), "once it is to stay, it stays"
    assert set(states) == {"", "first"}


def test_a_killed_undo_is_finished_and_does_not_overwrite_later_values(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def applied_and_undone(cluster: Cluster) -> None:
        cluster.process().apply(FIRST)
        cluster.process().restore(applied=True)

    for cluster in killed_at_each_write(monkeypatch, tmp_path, applied_and_undone):
        cluster.process().restore(applied=True)
        assert cluster.options == ORIGINAL
        cluster.options["osd_max_backfills"] = "8"
        cluster.process().restore(applied=False)
        cluster.process().restore(applied=True)
        assert cluster.options["osd_max_backfills"] == "8"


def test_another_configuration_that_is_killed_leaves_one_consistent_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def both(cluster: Cluster) -> None:
        cluster.process().apply(FIRST)
        cluster.process().apply(SECOND)

    for cluster in killed_at_each_write(monkeypatch, tmp_path, both):
        cluster.process().restore(applied=False)
        name = cluster.process().permanent.in_place()
        changed = {"": {}, "first": {"osd_max_backfills": "3"}, "second": {"osd_recovery_max_active": "4"}}[name]
        assert cluster.options == ORIGINAL | changed
        cluster.process().restore(applied=True)
        assert cluster.options == ORIGINAL


def opened(folder: Path, *, for_change: bool, cluster: Any = None) -> CephTarget:
    cluster = cluster or SmallCluster()
    return CephTarget(
        "ceph:small",
        admin=cluster,
        images=cluster,
        access=ClientAccess("admin", ""),
        folder=folder,
        journal=Journal(folder / "journal.jsonl", read_only=not for_change),
        adapters=ClusterAdapters(greater=cast(Any, SimpleNamespace(restore=lambda: None))),
        for_change=for_change,
    )


def test_opening_a_target_finishes_what_a_killed_process_was_keeping(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    process = cluster.process()
    plan = process.plan(FIRST)
    process.permanent.apply(plan)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Journal, "forget", Mock(side_effect=Killed))
        process.permanent.keep(plan)
    listed = opened(cluster.folder, for_change=False)  # it changes nothing, and lists what the next one would do
    assert listed.permanent().in_place() == "first"
    assert listed.undoings() == ()
    assert [u.what for u in listed.permanent().undoings()] == ["option osd_max_backfills of osd"]
    assert Journal(cluster.folder / "journal.jsonl").entries()
    target = opened(cluster.folder, for_change=True)
    assert not (cluster.folder / "journal.jsonl").exists()
    assert target.permanent().in_place() == "first"
    assert [u.what for u in target.permanent().undoings()] == ["option osd_max_backfills of osd"]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 1 s pass at each look at the clock."""
    seconds = count()
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)), sleep=lambda _: None)
    monkeypatch.setattr(permanent_configuration, "time", clock)


BAD = Health(False, ("OSD_DOWN: 1 osds down",))
MUTE = ClusterError("no monitor answers", where="mon")


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("reports", [[BAD], [MUTE], [BAD, MUTE]])
def test_health_that_is_bad_or_cannot_be_read_for_10_s_undoes_it(
    cluster: Cluster, reports: list[Health | CephfitError]
) -> None:
    process = cluster.process()
    plan = process.plan(FIRST)
    process.permanent.apply(plan)
    cluster.reports = cycle(reports)
    why = "its health cannot be read: no monitor answers|OSD_DOWN: 1 osds down"
    with pytest.raises(ClusterError, match=f"the cluster is not healthy: ({why}). Everything was undone"):
        process.permanent.watch(plan, seconds=60)
    assert cluster.options == ORIGINAL
    assert process.permanent.in_place() == ""


@pytest.mark.usefixtures("hasty")
def test_health_that_cannot_be_read_for_a_moment_undoes_nothing(cluster: Cluster) -> None:
    process = cluster.process()
    plan = process.plan(FIRST)
    process.permanent.apply(plan)
    cluster.reports = iter([MUTE] * 5)
    process.permanent.watch(plan, seconds=3)
    assert next(cluster.reports, None) is None, "the watch lasted until the cluster was healthy again"
    assert cluster.options["osd_max_backfills"] == "3"


@pytest.mark.usefixtures("hasty")
def test_what_cannot_be_undone_while_the_cluster_is_away_stays_in_the_journal(cluster: Cluster) -> None:
    process = cluster.process()
    plan = process.plan(FIRST)
    process.permanent.apply(plan)
    cluster.reports, process.reset = repeat(MUTE), Mock(side_effect=MUTE)  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="Undoing it failed as well") as caught:
        process.permanent.watch(plan, seconds=60)
    assert "cephfit restore" in caught.value.remedy
    cluster.process().restore(applied=False)
    assert cluster.options == ORIGINAL


def test_a_failed_application_undoes_the_configuration_before_and_names_it(cluster: Cluster) -> None:
    cluster.process().apply(FIRST)
    cluster.refuses = "osd_recovery_max_active"
    with pytest.raises(ClusterError) as caught:
        cluster.process().apply(SECOND)
    assert caught.value.what == (
        "osd_recovery_max_active is refused. Everything was undone, also first, which was applied before"
    )
    assert caught.value.remedy == "apply first again if it is to stay"
    assert cluster.options == ORIGINAL
    assert cluster.process().permanent.in_place() == ""


def test_the_plan_says_that_a_failure_undoes_the_configuration_before(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.process().apply(FIRST)
    _print_plan(cluster.process().plan(SECOND), "fake", "")
    assert "If this fails, all of first is undone too" in capsys.readouterr().out


def test_a_failure_without_a_configuration_before_names_none(cluster: Cluster) -> None:
    cluster.refuses = "osd_recovery_max_active"
    with pytest.raises(ClusterError) as caught:
        cluster.process().apply(SECOND)
    assert caught.value.what.endswith("Everything was undone")
    assert caught.value.remedy == ""


class AnsweringCluster(SmallCluster):
    """A ``SmallCluster`` that also answers what a plan asks."""

    def _osd_crush_rule_ls(self) -> Any:
        return ["replicated_rule"]

    def _osd_lspools(self) -> Any:
        return []

    def _config_show(self, who: str) -> Any:
        return []


def test_a_plan_names_the_restarts_for_what_it_undoes(tmp_path: Path) -> None:
    """`first` has an option that OSDs read at their start; `second` has none, and replaces it."""
    applied = Journal(tmp_path / "applied.jsonl")
    applied.note("applied configuration", "first", ["ceph/osd/osd_op_num_shards = 3"])
    applied.note(CONFIG, "osd osd_op_num_shards", None)
    cluster: Any = AnsweringCluster()
    cluster.store = {("osd", "osd_op_num_shards"): "3"}
    target = opened(tmp_path, for_change=False, cluster=cluster)
    plan = target.permanent().plan(FIRST)
    assert plan.restarts == (0, 1, 2)
    assert plan.faults == (
        "osd.0, osd.1, osd.2 must be restarted, also for what is undone; this target cannot restart OSDs",
    )
    cluster.store = {}
    assert target.permanent().plan(FIRST).restarts == ()


def test_a_plan_says_that_data_moves_back_and_the_health_may_show_it(tmp_path: Path) -> None:
    applied = Journal(tmp_path / "applied.jsonl")
    applied.note("applied configuration", "first", ["pool/pool/crush_rule = ssd"])
    applied.note("pool value", "vms crush_rule", "hdd")
    plan = opened(tmp_path, for_change=False, cluster=AnsweringCluster()).permanent().plan(FIRST)
    assert plan.moves_data
    assert plan.warnings[-1] == "data moves in the background, because of what is undone: crush_rule of pool vms"


def test_pools_are_changed_after_the_restarts_of_osds(cluster: Cluster) -> None:
    """While data moves, no OSD may stop."""
    process = cluster.process()
    order: list[str] = []
    original = process.apply_options

    def apply_options(configuration: Configuration) -> tuple[int, ...]:
        order.append("options")
        return original(configuration)

    process.apply_options = apply_options  # type: ignore[method-assign]
    process.permanent._pools = cast(Any, SimpleNamespace(give_back=lambda but: order.append("pools")))
    process.permanent.apply(process.plan(FIRST))
    assert order == ["options", "pools"]
