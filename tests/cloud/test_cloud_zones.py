"""Availability zones and compute hosts that a target names, against a Nova that is scripted."""

from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from openstack.connection import Connection
from scripted_services import Answer, Services

from cephfit.cloud import cloud_preflight
from cephfit.cloud.cloud_choice import CloudChoice
from cephfit.cloud.cloud_preflight import guests_that_fit
from cephfit.cloud.free_capacity import Wanted
from cephfit.core.errors import InputError
from cephfit.core.units import GIB

NOVA = "GET /compute/v2.1"
FORBIDDEN: Answer = (403, {"forbidden": {"code": 403, "message": "Policy doesn't allow it to be performed."}})
HOSTS: dict[str, dict[str, tuple[str, ...]] | None] = {
    "internal": {"controller": ("nova-conductor", "nova-scheduler")},
    "nova": {"compute2": ("nova-compute",), "compute1": ("nova-compute",)},
    "rack-2": {"compute7": ("nova-compute",)},
    "closed": None,
}
"""As Nova shows them to administrators; of a zone that is not available it shows no hosts."""


def zone(name: str, hosts: dict[str, tuple[str, ...]] | None) -> dict[str, Any]:
    there = {host: {one: {"active": True} for one in ran} for host, ran in hosts.items()} if hosts else None
    return {"zoneName": name, "zoneState": {"available": bool(hosts)}, "hosts": there}


def hypervisor(host: str) -> dict[str, Any]:
    # Hypervisors have names of their own, often with a domain.
    named = {"hypervisor_hostname": f"{host}.example", "service": {"host": host}}
    return {"vcpus": 4, "vcpus_used": 1, "state": "up", "status": "enabled", **named}


@pytest.fixture
def cloud(services: Services, scripted_cloud: Connection) -> Connection:
    """A cloud with three zones and three compute hosts, seen by an administrator."""
    shown = {"availabilityZoneInfo": [zone(name, None) for name in HOSTS if name != "internal"]}
    services.say(f"{NOVA}/os-availability-zone", (200, shown))
    whole = {"availabilityZoneInfo": [zone(name, hosts) for name, hosts in HOSTS.items()]}
    services.say(f"{NOVA}/os-availability-zone/detail", (200, whole))
    hypervisors = [hypervisor(host) for host in ("compute1", "compute2", "compute7")]
    services.say(f"{NOVA}/os-hypervisors/detail", (200, {"hypervisors": hypervisors}))
    return scripted_cloud


@pytest.mark.parametrize(
    "named", ["nova", "rack-2", "nova:compute1", ":compute7", "nova:compute1:compute1.example", "closed"]
)
def test_a_zone_and_a_host_that_are_there_will_do(cloud: Connection, named: str) -> None:
    assert cloud_preflight.require_zone(cloud, named) == ""


def test_a_mistyped_zone_is_told_with_the_one_that_may_be_meant(
    cloud: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not as a zone whose hosts have no processors free."""
    for name in ("require_image", "require_flavor", "require_network", "require_types"):
        monkeypatch.setattr(cloud_preflight, name, lambda *_: None)
    choice = CloudChoice(flavor="cephfit.tiny", volume_type="hdd", network="lab", zone="rak-2:compute1")
    with pytest.raises(InputError, match="no availability zone rak-2") as error:
        cloud_preflight.require(cloud, choice, [Wanted("hdd", 1)], nbytes=GIB, pools=None)
    assert "did you mean 'rack-2'" in (error.value.remedy or "")


@pytest.mark.parametrize(
    ("named", "what", "remedy"),
    [
        (
            "nova:compte1",
            "availability zone nova has no enabled compute host compte1; it has compute1, compute2",
            "name one of these",
        ),
        (
            "nova:compute7",
            "availability zone nova has no enabled compute host compute7; it has compute1, compute2",
            "zone=rack-2:compute7, where this host is",
        ),
        (
            ":controller",
            "the cloud has no enabled compute host controller; it has compute1, compute2, compute7",
            "name one of these",
        ),
        (
            "closed:compute9",
            "availability zone closed has no enabled compute host compute9; it has none",
            "name another zone, or omit zone= in the target",
        ),
    ],
    ids=["mistyped", "of another zone", "of other services", "of a zone without any"],
)
def test_a_host_that_the_zone_does_not_have_is_told_with_those_that_it_has(
    cloud: Connection, named: str, what: str, remedy: str
) -> None:
    """And not as one that has processors free for 0 guests."""
    with pytest.raises(InputError) as error:
        cloud_preflight.require_zone(cloud, named)
    assert (error.value.what, error.value.remedy) == (what, remedy)


def test_who_may_not_see_hosts_is_told_that_nobody_looked(services: Services, cloud: Connection) -> None:
    """Ordinary users may name no host anyway, unless the cloud's policy says otherwise."""
    services.say(f"{NOVA}/os-availability-zone/detail", FORBIDDEN)
    said = "Nova shows only administrators its compute hosts: whether host compte1 exists was not checked"
    assert cloud_preflight.require_zone(cloud, "nova:compte1") == said
    assert cloud_preflight.require_zone(cloud, "nova") == ""


@pytest.mark.parametrize(
    ("named", "fitting"), [("", 9), ("nova", 6), ("rack-2", 3), ("nova:compute1", 3), ("closed", 0)]
)
def test_guests_fit_on_the_hosts_of_the_zone(cloud: Connection, named: str, fitting: int) -> None:
    assert guests_that_fit(cloud, vcpus=1, zone=named) == fitting


def test_of_a_zone_whose_hosts_are_not_shown_nobody_knows_how_many_fit(
    services: Services, cloud: Connection
) -> None:
    """Where a cloud's policy shows hypervisors, but not which are in a zone."""
    services.say(f"{NOVA}/os-availability-zone/detail", FORBIDDEN)
    assert guests_that_fit(cloud, vcpus=1, zone="nova") is None
    assert guests_that_fit(cloud, vcpus=1, zone="nova:compute1") == 3
