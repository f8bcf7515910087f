"""Placement, QoS, and which settings can be measured from guests: the pure parts."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")
pytest.importorskip("rados", reason="needs Ceph's Python binding")

import keystoneauth1.exceptions as keystone
from openstack.connection import Connection
from scripted_services import Services

from cephfit.cloud import cloud_connection, cloud_preflight, stacks
from cephfit.cloud.cloud_choice import parse_choice
from cephfit.cloud.cloud_connection import connect
from cephfit.cloud.guests import guest_jobs
from cephfit.cloud.guests.guests import Place, PlacedEngine, places_of
from cephfit.cloud.stacks import Node
from cephfit.cloud.volumes import cinder_volumes
from cephfit.cloud.volumes.volume_types import Qos, volumes_found
from cephfit.core.errors import CephfitError, ClusterError, InputError
from cephfit.core.protocols import Client
from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.core.values.sample import Metrics
from cephfit.measure.engine import CellOutcome, CellRun, ClientOutcome
from cephfit.operations.measuring.cluster_options import is_existing_cluster
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.targets.openstack_ceph import (
    OpenStackWithCeph,
    cloud_part,
    cluster_part,
    why_not_below_a_cloud,
    written_under,
)
from cephfit.targets.openstack_target import OpenStackTarget

METRICS = Metrics(iops=10.0, nbytes_per_s=40960.0, n_ios=10, runtime_ns=10**9, latency_mean_ns=1e6)


class OneCell:
    """An engine with a known result."""

    def facts(self) -> Mapping[str, str]:
        return {"mode": "known"}

    def warm(self, run: CellRun) -> None:
        """Nothing is cold."""

    def run(self, run: CellRun) -> CellOutcome:
        return CellOutcome({client.name: ClientOutcome(METRICS) for client in run.clients}, None)


class Guests:
    """Two guests; the second one moves to another host at a given query."""

    def __init__(self, moves_at: int = 99, gone_at: int = 99) -> None:
        self._n_asked, self._moves_at, self._gone_at = 0, moves_at, gone_at

    def places(self) -> Mapping[str, Place]:
        self._n_asked += 1
        if self._n_asked >= self._gone_at:
            raise ClusterError("Nova does not answer")
        host = "compute2" if self._n_asked >= self._moves_at else "compute1"
        return {"c0": Place("s0", "compute1", "f00"), "c1": Place("s1", host, "")}

    def n_guests(self) -> int:
        return 3


def measured(guests: Guests, small_text: str) -> Mapping[str, ClientOutcome]:
    measurement = parse_sweep(small_text, file="small.yaml").measurement
    clients = [Client(f"c{n}", {}, 1 << 20) for n in range(2)]
    run = CellRun("A", Cell.parse("4K-read"), 0, 0, measurement, clients, {"c0": 1, "c1": 2})
    return PlacedEngine(OneCell(), guests).run(run).clients


def test_the_sample_records_the_placement_of_its_guest(small_text: str) -> None:
    outcome = measured(Guests(), small_text)["c0"]
    assert outcome.evidence["placement"] == {
        "server": "s0",
        "host": "compute1",
        "host_id": "f00",
        "idle_guests": 1,
    }
    assert outcome.doubt == ""


def test_a_sample_of_a_guest_that_moved_is_invalid(small_text: str) -> None:
    outcomes = measured(Guests(moves_at=2), small_text)
    assert outcomes["c0"].doubt == ""
    assert outcomes["c1"].doubt == "its guest was moved from compute1 to compute2 during the run"


@pytest.mark.parametrize("gone_at", [1, 2])
def test_an_unanswered_query_to_nova_costs_the_sample_not_the_sweep(small_text: str, gone_at: int) -> None:
    for outcome in measured(Guests(gone_at=gone_at), small_text).values():
        assert "Nova does not answer" in (outcome.failure or outcome.doubt)


def test_a_qos_limit_is_one_sentence() -> None:
    specs = {"read_iops_sec": "500", "total_bytes_sec_per_gb": "1048576", "size_iops_sec": "4096", "note": "x"}
    assert Qos("gold", "front-end", specs).sentence("fast") == (
        "volumes of type fast do at most 500 I/Os per second (reads); 1M per second for each GiB (reads and "
        "writes), each (by the hypervisor, QoS spec gold): what is faster is not seen"
    )
    assert Qos("free", "back-end", {"total_iops_sec": "0", "minIOPS": "3"}).sentence("fast") == ""


def setting(partition: Partition, scope: str, key: str) -> Setting:
    return Setting(partition, scope, key, 1)


def test_a_configuration_has_a_cluster_part_and_a_cloud_part() -> None:
    of_ceph, of_pool = setting(Partition.CEPH, "osd", "a"), setting(Partition.POOL, "volume", "type")
    both = Configuration("both", tuple(sorted((of_ceph, of_pool))))
    assert cluster_part(both).settings == (of_ceph,)
    assert cloud_part(both).settings == (of_pool,)
    assert written_under(cluster_part(both)) != written_under(Configuration("A")) == ""


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (setting(Partition.CEPH, "client", "rbd_cache"), "opened by the compute hosts"),
        (setting(Partition.GREATER, "client_disk", "nr_requests"), "those of the guests"),
        (setting(Partition.GREATER, "osd_store/class:hdd", "objectstore"), "the cloud's volumes are on them"),
        (setting(Partition.CEPH, "osd/class:hdd", "osd_op_num_shards"), ""),
        (setting(Partition.GREATER, "osd_disk", "scheduler"), ""),
    ],
)
def test_settings_that_guests_cannot_measure_have_a_reason(one: Setting, words: str) -> None:
    message = why_not_below_a_cloud(one)
    assert (words in message) if words else message == ""


def test_a_cluster_below_a_cloud_is_changed_only_with_apply() -> None:
    assert is_existing_cluster("openstack:work,flavor=a,ceph=/etc/ceph/ceph.conf")
    assert not is_existing_cluster("openstack:work,flavor=a,lab=default")
    with pytest.raises(InputError, match="both name the cluster"):
        parse_choice("openstack:work,ceph=ceph,lab=default")


def test_option_delivery_below_a_cloud_is_written_as_for_a_cluster() -> None:
    choice = parse_choice("openstack:work,ceph=ceph,settings=conf,osd_conf=/etc/ceph/$name.conf")
    assert choice.delivery == "settings=conf,osd_conf=/etc/ceph/$name.conf"
    assert parse_choice("openstack:work,ceph=ceph").delivery == ""
    with pytest.raises(InputError, match="none is named"):
        parse_choice("openstack:work,settings=conf")


def test_the_cloud_of_os_cloud_is_the_default() -> None:
    assert parse_choice("openstack:flavor=small,volume_type=hdd").cloud == ""
    assert parse_choice("openstack:flavor=small,volume_type=hdd").flavor == "small"


@pytest.mark.parametrize(
    ("named", "what", "remedy"),
    [
        ("", "no cloud is named", "choose from: production, staging"),
        (
            "prodution",
            "the cloud prodution cannot be used: Cloud prodution was not found",
            "did you mean 'production'?",
        ),
        ("staging", "the cloud staging cannot be used: ", "correct its entry in clouds.yaml"),
    ],
)
def test_an_unknown_cloud_is_refused_with_the_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, what: str, remedy: str
) -> None:
    file = tmp_path / "clouds.yaml"
    file.write_text("clouds:\n  production: {auth: {auth_url: http://127.0.0.1:9}}\n  staging: {auth: {}}\n")
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    with pytest.raises(InputError) as error:
        connect(named)
    assert error.value.what.startswith(what)
    assert error.value.remedy == remedy


class WithoutCatalogue:
    """A cloud without its Keystone when a service is first used: the SDK asks Keystone for that service."""

    name = "work"

    def __getattr__(self, service: str) -> None:
        raise keystone.ConnectFailure("Unable to establish connection to Keystone")


def test_reading_back_finds_volumes_of_another_type(services: Services, scripted_cloud: Connection) -> None:
    """Also return limits of volumes, which only an administrator can see."""
    for volume, volume_type in (("v0", "ssd"), ("v1", "hdd")):
        shown = {"id": volume, "volume_type": volume_type}
        services.say(f"GET /block_storage/v3/volumes/{volume}", (200, {"volume": shown}))
    types = [{"name": "ssd", "qos_specs_id": "q"}, {"name": "hdd"}]
    services.say("GET /block_storage/v3/types", (200, {"volume_types": types}))
    spec = {"name": "gold", "consumer": "front-end", "specs": {"total_iops_sec": "60"}}
    services.say("GET /block_storage/v3/qos-specs/q", (200, {"qos_specs": spec}))
    nodes = [Node("c0", "s0", "v0", ""), Node("c1", "s1", "v1", "")]
    chosen = Configuration("ssd", (Setting(Partition.POOL, "volume", "type", "ssd"),))
    values, mismatches = volumes_found(scripted_cloud, chosen, "ssd", nodes)
    assert values["pool/volume/type = ssd"] == {"c0": "ssd", "c1": "hdd"}
    assert values["QoS of volume type ssd"] == {"cinder": spec}
    assert mismatches == ["a volume is of type hdd, not ssd"]
    values, mismatches = volumes_found(scripted_cloud, Configuration("A"), "hdd", nodes[1:])
    assert (values, mismatches) == ({"QoS of volume type hdd": {"cinder": "not visible to this user"}}, [])


class Journalled:
    """A stack that the cloud fails to delete."""

    def delete(self, _: object) -> None:
        raise ClusterError("the stack could not be deleted")


class Changed:
    """A cluster with options of a sweep."""

    is_reset = False

    def reset(self) -> None:
        self.is_reset = True


def test_the_clusters_options_are_restored_even_if_a_stack_remains() -> None:
    target, below = object.__new__(OpenStackWithCeph), Changed()
    vars(target).update(_lock=object(), _made=Journalled(), _ceph=below)
    with pytest.raises(ClusterError, match="could not be deleted"):
        target.reset()
    assert below.is_reset


@pytest.mark.parametrize(
    "ask",
    [
        lambda cloud: cloud_preflight.require_image(cloud, "cephfit-guest"),
        lambda cloud: cloud_preflight.require_flavor(cloud, "small"),
        lambda cloud: cloud_preflight.require_network(cloud, "private"),
        lambda cloud: cinder_volumes.type_of(cloud, "v"),
        lambda cloud: cinder_volumes.note_on(cloud, "v", "trace"),
        lambda cloud: places_of(cloud, [Node("c0", "s", "v", "")]),
        lambda cloud: stacks.resources_of(cloud, "s"),
        lambda cloud: guest_jobs.handles(cloud, "s"),
    ],
)
def test_an_unavailable_keystone_is_one_sentence_for_every_service(
    ask: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_connection, "_ATTEMPTS", 1)
    with pytest.raises(ClusterError, match="a service of the cloud does not answer"):
        ask(WithoutCatalogue())


@pytest.mark.parametrize("refusal", [InputError("clouds.yaml is gone"), ClusterError("the stack is still there")])
def test_the_cluster_is_restored_if_the_cloud_cannot_be_cleaned_up(
    refusal: CephfitError, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Below:
        def reset(self) -> None:
            raise ClusterError("osd.3 does not start")

    def refuse(_: Any) -> None:
        raise refusal

    monkeypatch.setattr(OpenStackTarget, "reset", refuse)
    target: Any = OpenStackWithCeph.__new__(OpenStackWithCeph)
    target._ceph = Below()
    with pytest.raises(ClusterError, match=rf"{refusal.what}; osd\.3 does not start"):
        target.reset()
