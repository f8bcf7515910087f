"""Deleting what runs own, and finding it: by HTTP, against services that are scripted."""

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from click.testing import CliRunner
from openstack.connection import Connection
from scripted_services import GATEWAY, GONE, Answer, Services

from cephfit.cli.cluster import cloud_command as cloud_command
from cephfit.cloud import cloud_cleanup
from cephfit.cloud.owned_resources import KINDS, runs
from cephfit.cloud.ownership import own_name
from cephfit.core.protocols import NullProgress

pytestmark = pytest.mark.usefixtures("no_waiting")

RUN = "mine-20261122T040000-abcd"


def a_volume(status: str, *, ago: timedelta) -> Answer:
    changed = (datetime.now(UTC) - ago).replace(tzinfo=None).isoformat()
    return 200, {"volume": {"id": "v", "status": status, "attachments": [], "updated_at": changed}}


def test_a_volume_that_is_being_deleted_gets_minutes_from_when_that_began(
    services: Services, scripted_cloud: Connection
) -> None:
    """A large image takes the storage a while: whoever resets its status meanwhile is in the way."""
    volume, reset = "GET /block_storage/v3/volumes/v", "POST /block_storage/v3/volumes/v/action"
    services.say(reset, GATEWAY, (202, {}))
    services.say(volume, *[a_volume("deleting", ago=timedelta(minutes=5))] * 100, GONE)
    assert cloud_cleanup.free(scripted_cloud, "v", NullProgress()) == ""
    assert services.n_asked(volume) == 101
    assert services.n_asked(reset) == 0
    services.say(volume, a_volume("deleting", ago=timedelta(minutes=20)))
    assert cloud_cleanup.free(scripted_cloud, "v", NullProgress()) == ""
    assert services.n_asked(reset) == 2, "no request has changed it for longer than anything takes"


@pytest.mark.parametrize("ahead", [timedelta(hours=-1), timedelta(hours=1)], ids=["behind", "ahead"])
def test_how_long_a_volume_is_being_deleted_is_told_by_the_clouds_clocks(
    services: Services, scripted_cloud: Connection, ahead: timedelta
) -> None:
    """This machine's is an hour off from them."""
    services.ahead = ahead
    volume, reset = "GET /block_storage/v3/volumes/v", "POST /block_storage/v3/volumes/v/action"
    services.say(reset, (202, {}))
    services.say(volume, *[a_volume("deleting", ago=timedelta(minutes=5) - ahead)] * 5, GONE)
    assert cloud_cleanup.free(scripted_cloud, "v", NullProgress()) == ""
    assert (services.n_asked(volume), services.n_asked(reset)) == (6, 0)
    services.say(volume, a_volume("deleting", ago=timedelta(minutes=20) - ahead))
    assert cloud_cleanup.free(scripted_cloud, "v", NullProgress()) == ""
    assert services.n_asked(reset) == 1


@pytest.mark.parametrize(
    ("changed", "asked", "seconds"),
    [
        ("2026-11-22T01:35:08.000000", "Sun, 22 Nov 2026 01:36:09 GMT", 61.0),
        ("2026-11-22T01:35:08.000000", "Sun, 22 Nov 2026 01:35:07 GMT", 0.0),
        ("2026-11-22T01:35:08.000000", "", 0.0),
        ("", "Sun, 22 Nov 2026 01:36:09 GMT", 0.0),
    ],
    ids=["a minute", "clocks of two services", "no header", "never changed"],
)
def test_what_nobody_told_counts_from_the_first_look(changed: str, asked: str, seconds: float) -> None:
    assert cloud_cleanup._seconds_between(changed, asked) == seconds


def test_a_deletion_that_cinder_took_gets_as_long_as_one_that_goes_on_already(
    services: Services, scripted_cloud: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of an hour: an image that is gone after fourteen minutes is deleted, not left."""
    clock = itertools.count(0.0, 60.0)
    monkeypatch.setattr(
        cloud_cleanup, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None)
    )
    monkeypatch.setattr(cloud_cleanup, "KINDS", [kind for kind in KINDS if kind.name == "volume"])
    volume = {"id": "v", "name": f"cephfit-{RUN}-0", "status": "deleting", "metadata": {"cephfit_run": RUN}}
    services.say("GET /block_storage/v3/volumes/detail", (200, {"volumes": [volume]}))
    services.say("DELETE /block_storage/v3/volumes/v", (202, {}))
    services.say("GET /block_storage/v3/volumes/v", *[(200, {"volume": volume})] * 14, GONE)
    deleted, left = cloud_cleanup.clean(scripted_cloud, RUN, NullProgress())
    assert ([thing.id for thing in deleted], left) == (["v"], ())


def test_what_cannot_be_deleted_is_told_with_the_services_own_reason(
    services: Services, scripted_cloud: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [kind for kind in KINDS if kind.name == "volume"]
    monkeypatch.setattr(cloud_cleanup, "KINDS", kinds)
    volume = {"id": "v", "name": f"cephfit-{RUN}-0", "status": "available", "metadata": {"cephfit_run": RUN}}
    services.say("GET /block_storage/v3/volumes/detail", (200, {"volumes": [volume]}))
    services.say("DELETE /block_storage/v3/volumes/v", GATEWAY, (202, {}))
    services.say("GET /block_storage/v3/volumes/v", (200, {"volume": {**volume, "status": "error_deleting"}}))
    said = {"messages": [{"user_message": "delete volume: Driver failed to delete it"}]}
    services.say("GET /block_storage/v3/messages", (200, said))
    _, (left,) = cloud_cleanup.clean(scripted_cloud, RUN, NullProgress())
    assert left.why == ("it still exists, with status error_deleting: delete volume: Driver failed to delete it")


LISTS = {
    "stack": ("orchestration/v1/stacks", "stacks"),
    "server": ("compute/v2.1/servers/detail", "servers"),
    "port": ("network/v2.0/ports", "ports"),
    "security group": ("network/v2.0/security-groups", "security_groups"),
    "server group": ("compute/v2.1/os-server-groups", "server_groups"),
    "volume": ("block_storage/v3/volumes/detail", "volumes"),
    "volume type": ("block_storage/v3/types", "volume_types"),
    "QoS spec": ("block_storage/v3/qos-specs", "qos_specs"),
}
"""Where each kind of thing is listed, and under which word."""


def have(services: Services, things: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """The project has these and no others, by kind."""
    for kind, (path, key) in LISTS.items():
        for at in addresses(path):
            services.say(f"GET /{at}", (200, {key: list(things.get(kind, ()))}))


def addresses(path: str) -> set[str]:
    """Where the SDK may look for a list: Neutron's version is found in several ways."""
    return {path, *(path.replace("network/v2.0", version) for version in ("network/v2/v2.0", "network/v2"))}


@pytest.mark.parametrize(
    ("kind", "thing"),
    [
        ("port", {"name": f"cephfit-{RUN}-0"}),
        ("security group", {"name": "any", "description": f"cephfit run {RUN}"}),
        ("server group", {"name": f"cephfit-{RUN}"}),
        ("QoS spec", {"name": own_name(RUN, "hdd-qos-1")}),
    ],
)
def test_a_run_of_which_one_thing_alone_is_left_is_listed(
    services: Services, scripted_cloud: Connection, kind: str, thing: dict[str, str]
) -> None:
    others = {
        "security group": [{"id": "1", "name": f"cephfit-{RUN}", "description": "somebody's"}],
        "server group": [{"id": "2", "name": "cephfit-theirs"}],
        "port": [{"id": "3", "name": "cephfit-theirs-0"}],
        "QoS spec": [{"id": "4", "name": "cephfit-theirs-hdd-00000000"}],
    }
    things = {name: [*others.get(name, []), *([{"id": "9", **thing}] if name == kind else [])] for name in LISTS}
    have(services, things)
    found = runs(scripted_cloud)
    assert {run_id: [(t.kind, t.id) for t in things] for run_id, things in found.items()} == {RUN: [(kind, "9")]}


def test_a_run_that_owns_nothing_is_told_so_before_it_is_cleaned_too(
    services: Services, scripted_cloud: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_command, "connected", lambda _: scripted_cloud)
    have(services, {})
    for words in (["--dry-run"], []):
        done = CliRunner().invoke(cloud_command.command, ["clean", RUN, *words], catch_exceptions=False)
        assert done.stdout == f"run {RUN} owns nothing in this project\n"


def test_each_kind_of_thing_is_listed_once_however_many_runs_there_are(
    services: Services, scripted_cloud: Connection
) -> None:
    other = RUN.replace("mine", "yours")
    volumes = [
        {"id": str(n), "name": f"cephfit-{run}-{n}", "status": "in-use", "metadata": {"cephfit_run": run}}
        for n, run in enumerate((RUN, other, RUN))
    ]
    have(services, {"volume": volumes, "port": [{"id": "3", "name": f"cephfit-{other}-0"}]})
    found = runs(scripted_cloud)
    assert {run_id: [thing.id for thing in things] for run_id, things in found.items()} == {
        other: ["3", "1"],
        RUN: ["0", "2"],
    }
    for path, _ in LISTS.values():
        assert sum(services.n_asked(f"GET /{at}") for at in addresses(path)) == 1, path
