"""The abilities of each target, engine and workload: these tests find abilities lost or added by accident."""

import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Protocol
from unittest.mock import Mock

import pytest

from cephfit.ceph.cluster_adapters import ClusterAdapters
from cephfit.core.journal import Journal
from cephfit.core.protocols import RunsTogether, Target, WarmsCaches, Workload
from cephfit.measure.engine import Engine, KnowsItsLimits, PreparesCells
from cephfit.targets import abilities
from cephfit.targets.local import LocalTarget
from cephfit.targets.simulated import SimulatedTarget

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("measure", "cloud", "targets", "sweep", "lab")

CEPH = {
    *("HasCatalogue", "HasTelemetry", "JudgesConfigurations", "KeepsNotes", "KeepsToImages", "MayKeepCaches"),
    *("Previews", "ReportsDisturbances", "ChecksClients", "WarnsOfSettings", "CountsTraffic"),
}
CLOUD = {
    *("BelongsToRun", "BringsEngine", "RunsGuestJobs", "JudgesConfigurations", "KeepsNotes", "MayKeepCaches"),
    *("Previews", "ScalesClients", "ReportsLimits"),
}
SIMULATION = {"BringsEngine", "JudgesConfigurations", "EstimatesStepTimes", "ChecksSweep", "WarnsOfSettings"}
LOCAL = {"JudgesConfigurations", "CountsTraffic"}
BACKEND = {"HasTelemetry", "JudgesConfigurations", "MayKeepCaches", "CountsTraffic"}

TARGETS = {
    "lab.lab_target.LabTarget": CEPH,
    "targets.backends.iscsi_target.IscsiTarget": BACKEND,
    "targets.backends.nfs_target.NfsTarget": {*BACKEND, "ExportsFiles"},
    "targets.backends.swift_target.SwiftTarget": {*BACKEND, "ExportsFiles"},
    "targets.ceph.ceph_target.CephTarget": CEPH,
    "targets.ceph.existing_cluster.ExistingClusterTarget": CEPH,
    "targets.local.LocalTarget": LOCAL,
    "targets.openstack_target.OpenStackTarget": CLOUD,
    "targets.openstack_ceph.OpenStackWithCeph": {
        *CLOUD,
        *("HasCatalogue", "HasTelemetry", "ReportsDisturbances", "WarnsOfSettings"),
    },
    "targets.openstack_target.SharedVolumeTarget": CLOUD,
    "targets.simulated.SimulatedTarget": SIMULATION,
}
ENGINES: dict[str, set[str]] = {
    "cloud.guests.guest_transport.GuestJobEngine": set(),
    "cloud.guests.guests.PlacedEngine": set(),
    "cloud.guests.guest_transport._ChosenEngine": set(),
    "measure.fio.fio_local.FioEngine": set(),
    "measure.fio.fio_remote.RemoteFioEngine": set(),
    "measure.rados_bench.RadosBenchEngine": {"KnowsItsLimits", "PreparesCells"},
    "measure.rbd_bench.RbdBenchEngine": {"KnowsItsLimits", "PreparesCells"},
    "measure.micro.micro_engine.MicroEngine": {"KnowsItsLimits", "PreparesCells"},
    "targets.simulated.SimulatedEngine": set(),
}
WORKLOADS = {
    "lab.workloads.pgbench.GuestPgBench": {"RunsTogether", "WarmsCaches"},
    "lab.workloads.pgbench.PgBench": set(),
    "lab.workloads.fio_clone.FioClone": set(),
    "lab.workloads.program_workload.ProgramWorkload": set(),
    "targets.simulated_workload.SimulatedClone": {"WarmsCaches"},
    "targets.simulated_workload.SimulatedWorkload": {"WarmsCaches"},
}

OF_TARGETS = [
    one for one in vars(abilities).values() if getattr(one, "_is_protocol", False) and one is not Protocol
]
OF_ENGINES = [PreparesCells, KnowsItsLimits]
OF_WORKLOADS = [WarmsCaches, RunsTogether]
KINDS = [(Target, OF_TARGETS, TARGETS), (Engine, OF_ENGINES, ENGINES), (Workload, OF_WORKLOADS, WORKLOADS)]


def module_of(name: str) -> ModuleType:
    if name.startswith(("sweep.cloud", "targets.openstack_target", "lab.openstack", "cloud.guests.image_upload")):
        pytest.importorskip("openstack", reason="needs the extra openstack")
    return importlib.import_module(f"cephfit.{name}")


def is_written(cls: type, method: str) -> bool:
    """Return whether a class has a method that is not the stub of a protocol."""
    owner = next((one for one in cls.__mro__ if method in vars(one)), None)
    return owner is not None and not getattr(owner, "_is_protocol", False)


def has_all(cls: type, protocol: type) -> bool:
    """Return whether a class implements all methods of a protocol; False for a protocol without methods."""
    methods = inspect.isabstract(protocol) and protocol.__abstractmethods__  # type: ignore[attr-defined]
    return bool(methods) and all(is_written(cls, method) for method in methods)


def names_of(protocols: list[type], cls: type) -> set[str]:
    """Return the abilities among the bases of a class, including indirect ones."""
    return {protocol.__name__ for protocol in protocols if protocol in cls.__mro__}


@pytest.mark.parametrize(
    ("kind", "offered", "name", "expected"),
    [
        pytest.param(kind, offered, name, expected, id=name.rpartition(".")[2])
        for kind, offered, table in KINDS
        for name, expected in table.items()
    ],
)
def test_a_class_names_the_abilities_that_it_has_and_no_others(
    kind: type, offered: list[type], name: str, expected: set[str]
) -> None:
    module, _, word = name.rpartition(".")
    cls = getattr(module_of(module), word)
    assert kind in cls.__mro__
    assert not inspect.isabstract(cls), f"{word} lacks {sorted(cls.__abstractmethods__)}"
    assert names_of(offered, cls) == expected
    without_methods = {one.__name__ for one in offered if not inspect.isabstract(one)}
    assert {one.__name__ for one in offered if has_all(cls, one)} == expected - without_methods


@pytest.mark.parametrize("offered", [*OF_TARGETS, *OF_ENGINES, *OF_WORKLOADS], ids=lambda one: one.__name__)
def test_no_method_of_an_ability_is_inherited_as_a_stub(offered: type) -> None:
    methods = [name for name, value in vars(offered).items() if inspect.isfunction(value) and name[0] != "_"]
    for omitted in methods:
        written = {name: (lambda *_: None) for name in methods if name != omitted}
        with pytest.raises(TypeError, match=rf"abstract method.* '?{omitted}\b"):
            type("Forgetful", (offered,), written)()
    assert methods or offered is abilities.KeepsToImages, "otherwise every target would have it"


@pytest.mark.parametrize(("kind", "table"), [(kind, table) for kind, _, table in KINDS])
def test_every_implementation_is_in_the_tables_above(kind: type, table: dict[str, set[str]]) -> None:
    found = set()
    for file in [
        f
        for room in ROOMS
        for f in (ROOT / room).rglob("[!_]*.py")
        if (ROOT / "lab" / "openstack") not in f.parents
    ]:
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for word, value in vars(module_of(name)).items():
            is_here = inspect.isclass(value) and value.__module__ == f"cephfit.{name}"
            if is_here and has_all(value, kind) and not inspect.isabstract(value):  # no base such as BackendTarget
                found.add(f"{name}.{word}")
    assert found == set(table)


@pytest.mark.parametrize("only_pool", ["", "vms"])
def test_a_cluster_and_one_pool_of_it_offer_the_same(only_pool: str, tmp_path: Path) -> None:
    from cephfit.targets.ceph.ceph_target import CephTarget

    target = CephTarget(
        "ceph:nobody",
        admin=Mock(),
        images=Mock(),
        access=Mock(),
        folder=tmp_path,
        journal=Journal(tmp_path / "journal.jsonl", read_only=True),
        adapters=ClusterAdapters(greater=Mock()),
        for_change=False,
        only_pool=only_pool,
    )
    assert {one.__name__ for one in OF_TARGETS if isinstance(target, one)} == CEPH
    assert target.only_pool == only_pool


def test_isinstance_checks_the_class_of_a_target(tmp_path: Path) -> None:
    local = LocalTarget(tmp_path / "volume", for_change=False)
    for target, expected in ((SimulatedTarget(), SIMULATION), (local, LOCAL)):
        assert {one.__name__ for one in OF_TARGETS if isinstance(target, one)} == expected
    local.close()
