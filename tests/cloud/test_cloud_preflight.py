"""The preflight of a cloud, against recorded answers of a real OpenStack (release Zed).

tests/cloud/record_cloud.py records it.
"""

import ipaddress
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")
pytest.importorskip("vcr", reason="needs vcrpy")

from openstack.connection import Connection
from recorded_cloud import played, player
from test_cloud_recorded import error_of

from cephfit.cloud import cloud_preflight, free_capacity
from cephfit.cloud.cloud_choice import CloudChoice, parse_choice
from cephfit.cloud.cloud_facts import CloudForecast
from cephfit.cloud.cloud_preflight import guests_that_fit
from cephfit.cloud.free_capacity import (
    CinderPool,
    Need,
    Wanted,
    asked_of,
    cinder_pools,
    fits,
    pools_of,
    why_unchecked,
)
from cephfit.cloud.guests import guest_transport
from cephfit.cloud.guests.guest_transport import NO_HOST, reached_from
from cephfit.cloud.stacks import LARGEST_STACK
from cephfit.core.errors import InputError
from cephfit.core.units import GIB
from cephfit.sweep.declaration.sweep_file import parse_sweep

pytestmark = pytest.mark.usefixtures("recorded_release")

CHOICE = CloudChoice(flavor="cephfit.tiny", volume_type="hdd", network="lab")
QUOTA = {"volumes_ssd": 20, "gigabytes_ssd": 50, "per_volume_gigabytes": 4}
"""Of Cinder, when it was recorded."""
MANY = [Wanted("hdd", 26, n_there=1), Wanted("ssd", 5), Wanted("ssd", 7, has_own_type=True)]
ELSEWHERE = "cephfit-tests-zone"
QOS_SWEEP = """
schema_version: 1
name: capped
configurations:
  capped: {volume: {qos: {total_iops_sec: 60}}}
  fast: {volume: {type: ssd}}
measurement: {sizes: [4K], patterns: [read], clients: 3, volume_size: 100G, repeats: 1, run_seconds: 2, seed: 1,
  cache: warm}
"""


# Each scenario is what was done when it was recorded, and what is done again when it is played.


def enough(cloud: Connection) -> tuple[list[str], tuple[str, ...]]:
    wanted = [Wanted("hdd", 2), Wanted("ssd", 2)]
    found = cloud_preflight.require(cloud, CHOICE, wanted, nbytes=GIB, pools=cinder_pools(cloud))
    flavor = cloud_preflight.require_flavor(cloud, CHOICE.flavor)
    asked = asked_of(cloud, flavor, MANY, gib=5, has_network=True)
    return [need.sentence for need in asked.needs if need.sentence], found.unseen


def room_on_hosts(cloud: Connection) -> list[int | None]:
    zones = ["", "nova", "nova:no-such-host", ELSEWHERE]
    return [guests_that_fit(cloud, vcpus=1, zone=zone) for zone in zones] + [
        guests_that_fit(cloud, vcpus=1000, zone="")
    ]


def too_few_processors(cloud: Connection) -> str:
    wanted = [Wanted("hdd", 6)]
    return error_of(lambda: cloud_preflight.require(cloud, CHOICE, wanted, nbytes=GIB, pools=None))


def room_in_pools(cloud: Connection) -> tuple[Any, str]:
    pools = cinder_pools(cloud)
    assert pools is not None
    small = fits(cloud, pools, [Wanted("hdd", 1), Wanted("ssd", 2, n_there=2)], nbytes=GIB)
    wanted = [Wanted("hdd", 1), Wanted("hdd", 1, has_own_type=True)]
    large = error_of(lambda: cloud_preflight.require(cloud, CHOICE, wanted, nbytes=100 * GIB, pools=pools))
    return (pools, small), large


def what_a_run_would_make(cloud: Connection) -> tuple[Any, tuple[str, ...]]:
    sweep = parse_sweep(QOS_SWEEP, file="qos.yaml")
    forecast = CloudForecast(cloud, CHOICE)
    assert forecast.unsupported(sweep.configurations) == {}
    notes = forecast.notes(sweep, sweep.configurations, cinder_pools(cloud))
    return forecast.differences(sweep.configurations), notes


def own_place(cloud: Connection) -> guest_transport.From:
    return reached_from(cloud, CHOICE.network)


def lacking(cloud: Connection) -> list[str]:
    return [
        error_of(lambda: cloud_preflight.require_image(cloud, "cephfit-gest")),
        error_of(lambda: cloud_preflight.require_flavor(cloud, "cephfit.tny")),
        error_of(lambda: cloud_preflight.require_network(cloud, "labb")),
        error_of(lambda: cloud_preflight.require(cloud, CHOICE, [Wanted("sdd", 1)], nbytes=GIB, pools=None)),
        error_of(lambda: cloud_preflight.require_key_pair(cloud, "nobodys")),
    ]


def test_enough(played_cloud: Connection) -> None:
    """An ordinary user: quotas of three services are known, and hidden ones are named."""
    said, unseen = enough(played_cloud)
    assert said == [
        "37 more instances are needed, 24 of 24 are free (Nova's quota instances)",
        "37 more cores are needed, 24 of 24 are free (Nova's quota cores)",
        "14208 more MiB of memory are needed, 12288 of 12288 are free (Nova's quota ram)",
        "25 more servers in one server group are needed, 9 of 10 are free (Nova's quota server_group_members)",
        "185 more GiB of volumes are needed, 96 of 96 are free (Cinder's quota gigabytes)",
        "5 more GiB in one volume are needed, 4 of 4 are free (Cinder's quota per_volume_gigabytes)",
    ]
    assert [sentence.partition(" shows only administrators ")[0] for sentence in unseen] == ["Nova", "Cinder"]


def test_quotas_of_types_and_networks_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is asked of three services, by the names of the quotas."""
    with played("enough"):
        cloud = player()
        cloud_preflight.require(
            cloud, CHOICE, [Wanted("hdd", 2), Wanted("ssd", 2)], nbytes=GIB, pools=cinder_pools(cloud)
        )
        flavor = cloud_preflight.require_flavor(cloud, CHOICE.flavor)
        asked = asked_of(cloud, flavor, MANY, gib=5, has_network=True)
    assert asked.unseen == ()
    found = {need.quota: need for need in asked.needs}
    assert (found["Cinder's quota volumes_ssd"].more, found["Cinder's quota volumes_ssd"].limit) == (5, 20)
    assert (found["Cinder's quota gigabytes_ssd"].more, found["Cinder's quota gigabytes_ssd"].limit) == (25, 50)
    assert found["Nova's quota server_groups"].more == 2, "one stack is there already"
    assert (found["Neutron's quota port"].more, found["Neutron's quota port"].limit) == (37, 60)
    assert found["Neutron's quota security_group"].more == 2
    assert found["Neutron's quota security_group_rule"].more == 10


def test_guests_that_share_a_volume_need_one() -> None:
    """Each guest needs a port, cores and memory; the volume exists when the first guests of a stack do."""
    shared = [Wanted("ssd", 5, shares_volume=True), Wanted("hdd", 26, n_there=1, shares_volume=True)]
    with played("enough"):
        cloud = player()
        cloud_preflight.require(
            cloud, CHOICE, [Wanted("hdd", 2), Wanted("ssd", 2)], nbytes=GIB, pools=cinder_pools(cloud)
        )
        flavor = cloud_preflight.require_flavor(cloud, CHOICE.flavor)
        asked = asked_of(cloud, flavor, shared, gib=4, has_network=True)
    needed = {need.quota.partition(" quota ")[2]: need.more for need in asked.needs}
    assert (needed["volumes"], needed["gigabytes"]) == (1, 4)
    assert (needed["volumes_ssd"], needed["gigabytes_ssd"]) == (1, 4)
    assert (needed["instances"], needed["port"]) == (30, 30)
    assert needed["volumes_hdd"] == 0


def test_room_on_hosts(played_cloud: Connection) -> None:
    """The lab has one host with two processors, in the zone nova."""
    assert room_on_hosts(played_cloud) == [2, 2, 0, 0, 0]


def test_too_few_processors(played_cloud: Connection) -> None:
    said = too_few_processors(played_cloud)
    assert "6 more guests are needed, and the compute hosts have processors free for 2 (each needs 1)" in said
    assert "overcommit=yes" in said


def test_room_in_pools(played_cloud: Connection) -> None:
    """RBD's driver says in which Ceph pool it keeps volumes; what is there needs no room any more."""
    (pools, small), large = room_in_pools(played_cloud)
    assert {pool.ceph_pool for pool in pools} == {"volumes-hdd", "volumes-ssd"}
    assert all(len(pool.fsid) == 36 and pool.free_nbytes > GIB for pool in pools)
    assert [(fit.volume_type, fit.n, fit.is_enough) for fit in small] == [("hdd", 1, True)]
    assert "2 volumes of type hdd need 220G when they are written, Ceph pool volumes-hdd has " in large
    assert "overcommit=yes" in large


def test_what_a_run_would_make(played_cloud: Connection) -> None:
    """The preview shows QoS types, and whether the written data fits."""
    differences, notes = what_a_run_would_make(played_cloud)
    assert [(d.configuration, d.key, d.then) for d in differences] == [
        ("capped", "qos.total_iops_sec", "60"),
        ("fast", "type", "ssd"),
    ]
    assert notes[0].startswith("a private volume type cephfit-RUN-hdd-qos-")
    assert "like hdd, and a QoS spec of that name (total_iops_sec = 60) are created for capped" in notes[0]
    assert [note.partition(" need ")[0] for note in notes[1:]] == [
        "6 volumes of type hdd",
        "3 volumes of type ssd",
    ]
    assert all(note.endswith("too little, so the run would refuse to start") for note in notes[1:])


def test_own_place(played_cloud: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way is asked for to the first address that Neutron gives to guests."""
    asked = []

    def source(there: str) -> guest_transport.Address:
        asked.append(there)
        return ipaddress.ip_address("192.0.2.7")

    monkeypatch.setattr(guest_transport, "source_towards", source)
    found = own_place(played_cloud)
    assert found.cidr == "192.0.2.7/32"
    assert "reached_from=CIDR" in found.note
    assert len(asked) == 1 and asked[0].endswith(".20")


def test_nobody_is_let_in_where_the_own_address_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the note names the option that opens them."""
    monkeypatch.setattr(guest_transport, "source_towards", lambda there: None)
    with played("own_place"):
        found = own_place(player())
    assert found.cidr == NO_HOST
    assert "ports stay closed" in found.note


def test_an_address_that_only_this_machine_knows_is_none() -> None:
    assert guest_transport.source_towards("127.0.0.1") is None
    assert guest_transport.source_towards("::1") is None


def test_lacking(played_cloud: Connection) -> None:
    said = lacking(played_cloud)
    for sentence, kind, meant in zip(
        said[:4],
        ("image", "flavor", "network", "volume type"),
        ("cephfit-guest", "cephfit.tiny", "lab", "ssd"),
        strict=True,
    ):
        assert f"the cloud has no {kind}" in sentence
        assert f"did you mean '{meant}'" in sentence
    assert "cephfit image build" in said[0]
    assert "has no key pair nobodys" in said[4]
    assert "there is no key pair at all" in said[4]


@pytest.mark.parametrize(
    ("used", "limit", "words"),
    [(3, -1, ""), (7, 10, ""), (8, 10, "3 more instances are needed, 2 of 10 are free (Nova's quota instances)")],
)
def test_a_quota_is_enough_or_says_by_how_much_it_is_not(used: int, limit: int, words: str) -> None:
    assert Need("instances", 3, used, limit, "Nova's quota instances").sentence == words


def hypervisor(name: str, vcpus: int, used: int, **more: str) -> dict[str, Any]:
    # As Nova answers for GET /os-hypervisors/detail, version 2.1.
    return {
        "vcpus": vcpus,
        "vcpus_used": used,
        "state": "up",
        "status": "enabled",
        "service": {"host": name},
        **more,
    }


@pytest.mark.parametrize(
    ("hosts", "vcpus", "fitting"),
    [
        ([hypervisor("a", 20, 50), hypervisor("b", 20, 0)], 1, 20),
        ([hypervisor("a", 8, 7), hypervisor("b", 8, 7)], 2, 0),
        ([hypervisor("a", 8, 0), hypervisor("b", 8, 3)], 3, 3),
        ([hypervisor("a", 8, 0, status="disabled"), hypervisor("b", 8, 0, state="down")], 1, 0),
    ],
    ids=["one has promised too much", "free ones on two hosts", "what is over on each", "not to be used"],
)
def test_each_host_is_looked_at_by_itself(
    monkeypatch: pytest.MonkeyPatch, hosts: list[dict[str, Any]], vcpus: int, fitting: int
) -> None:
    monkeypatch.setattr(cloud_preflight, "json_of", lambda *_, **__: {"hypervisors": hosts})
    assert guests_that_fit(Named(), vcpus=vcpus, zone="") == fitting  # type: ignore[arg-type]
    monkeypatch.setattr(cloud_preflight, "json_of", lambda *_, **__: None)
    assert guests_that_fit(Named(), vcpus=vcpus, zone="") is None  # type: ignore[arg-type]


class Named:
    """A cloud of which only the name is used."""

    name = "work"


class OfTypes:
    """A volume type that names its back end."""

    def __init__(self, name: str, backend: str = "") -> None:
        self.name = name
        self.extra_specs = {"volume_backend_name": backend} if backend else {}


def test_types_that_share_a_pool_share_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five volumes of 10 GiB fit, with a tenth more each; the type that may lie nowhere else comes first."""
    pools = [CinderPool("a@x#x", "x", 40 * GIB), CinderPool("b@y#y", "y", 18 * GIB)]
    types = [OfTypes("any"), OfTypes("only-x", "x")]
    monkeypatch.setattr(free_capacity, "volume_types", lambda _: types)
    found = {
        fit.volume_type: fit
        for fit in fits(Named(), pools, [Wanted("any", 2), Wanted("only-x", 3)], nbytes=10 * GIB)  # type: ignore[arg-type]
    }
    assert (found["only-x"].n_fitting, found["only-x"].is_enough) == (3, True)
    assert (found["any"].n_fitting, found["any"].is_enough) == (1, False)
    assert "Cinder's pool a@x#x has " in found["any"].sentence


def test_guests_that_share_a_volume_need_its_room_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = [CinderPool("a@x#x", "x", 12 * GIB)]
    monkeypatch.setattr(free_capacity, "volume_types", lambda _: [OfTypes("any")])
    wanted = [Wanted("any", 5, shares_volume=True), Wanted("any", 9, n_there=2, shares_volume=True)]
    (fit,) = fits(Named(), pools, wanted, nbytes=10 * GIB)  # type: ignore[arg-type]
    assert (fit.n, fit.n_fitting, fit.is_enough) == (1, 1, True)


def test_hosts_of_one_ceph_pool_share_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts of Cinder's serve one pool of one cluster; the pool of that name on another cluster is another."""
    pools = [
        CinderPool("a@x#x", "x", 40 * GIB, ceph_pool="volumes", fsid="one"),
        CinderPool("b@x#x", "x", 39 * GIB, ceph_pool="volumes", fsid="one"),
        CinderPool("c@y#y", "y", 40 * GIB, ceph_pool="volumes", fsid="two"),
    ]
    monkeypatch.setattr(free_capacity, "volume_types", lambda _: [OfTypes("x", "x"), OfTypes("y", "y")])
    of_x, of_y = fits(Named(), pools, [Wanted("x", 5), Wanted("y", 3)], nbytes=10 * GIB)  # type: ignore[arg-type]
    assert (of_x.n_fitting, of_y.n_fitting) == (3, 3)
    assert of_x.sentence.count("Ceph pool volumes has ") == 1
    assert "has 39G free" in of_x.sentence, "the lesser of what two hosts say of one pool"


def test_types_whose_room_nobody_knows_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One back end does not say what it has free, another has no pool; the third has room."""
    pools = [CinderPool("a@x#x", "x", 40 * GIB), CinderPool("b@y#y", "y", None)]
    types = [OfTypes("known", "x"), OfTypes("silent", "y"), OfTypes("lost", "z"), OfTypes("there", "z")]
    monkeypatch.setattr(free_capacity, "volume_types", lambda _: types)
    wanted = [Wanted("known", 1), Wanted("silent", 1), Wanted("lost", 1), Wanted("there", 1, n_there=1)]
    found = fits(Named(), pools, wanted, nbytes=GIB)  # type: ignore[arg-type]
    assert [fit.volume_type for fit in found] == ["known"]
    said = why_unchecked(wanted, found)
    assert said.startswith("whether volumes of type lost and silent fit is not known before they are created")
    assert why_unchecked(wanted[:1], found) == ""


@pytest.mark.parametrize(
    ("said", "free"),
    [
        ({"free_capacity_gb": 100.0, "total_capacity_gb": 200.0, "reserved_percentage": 10}, 80 * GIB),
        ({"free_capacity_gb": "unknown", "total_capacity_gb": "unknown"}, None),
        ({"free_capacity_gb": "infinite", "total_capacity_gb": "infinite"}, None),
        ({}, None),
    ],
)
def test_what_a_back_end_keeps_back_is_not_free(said: dict[str, Any], free: int | None) -> None:
    assert free_capacity._free(said) == free


def test_a_type_without_a_back_end_may_lie_anywhere() -> None:
    pools = [CinderPool("a@x#x", "x", None), CinderPool("b@y#y", "y", None)]
    assert pools_of(pools, {}) == tuple(pools)
    assert pools_of(pools, {"volume_backend_name": "y"}) == (pools[1],)


def test_more_guests_than_a_stack_takes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("require_image", "require_flavor", "require_network", "require_types"):
        monkeypatch.setattr(cloud_preflight, name, lambda *_: None)
    wanted = [Wanted("hdd", LARGEST_STACK + 1)]
    with pytest.raises(InputError, match="101 guests at once are more than one Heat stack"):
        cloud_preflight.require(Named(), CHOICE, wanted, nbytes=GIB, pools=None)  # type: ignore[arg-type]


def test_who_may_reach_guests_and_how_they_are_placed_is_said_in_the_target() -> None:
    choice = parse_choice("openstack:work,reached_from=192.0.2.7,affinity=anti-affinity,key_name=mine")
    assert (choice.reached_from, choice.affinity, choice.key_name) == ("192.0.2.7/32", "anti-affinity", "mine")
    assert parse_choice("openstack:work,reached_from=2001:db8::/64").reached_from == "2001:db8::/64"
    with pytest.raises(InputError, match="reached_from"):
        parse_choice("openstack:work,reached_from=192.0.2.7/24")
    with pytest.raises(InputError, match="affinity=together"):
        parse_choice("openstack:work,affinity=together")


def test_groups_are_counted_once_for_each_new_stack() -> None:
    assert free_capacity._n_stacks([Wanted("a", 2), Wanted("b", 2, n_there=1), Wanted("c", 1, n_there=1)]) == 1
