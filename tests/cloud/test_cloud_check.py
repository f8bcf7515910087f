"""`cephfit cloud check`, against what a real OpenStack (release Zed) said: what it asks, and what it concludes."""

import json
from collections import Counter
from urllib.parse import urlsplit

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")
pytest.importorskip("vcr", reason="needs vcrpy")

from click.testing import CliRunner
from openstack.connection import Connection
from recorded_cloud import played, player
from scripted_services import Services

from cephfit.cli.cluster import cloud_command as cloud_command
from cephfit.cloud import cloud_preflight
from cephfit.cloud.cloud_choice import parse_choice
from cephfit.cloud.cloud_preflight import Findings
from cephfit.cloud.free_capacity import Wanted, asked_of
from cephfit.cloud.volumes import volume_types
from cephfit.cloud.volumes.volume_types import TypeQos
from cephfit.core.errors import ClusterError

pytestmark = pytest.mark.usefixtures("recorded_release")

TARGET = "openstack:flavor=cephfit.tiny,volume_type=hdd,network=lab"
BY_USER, BY_ADMINISTRATOR = "enough", "room_in_pools"
"""Recordings in which either asked for all of it."""


def checked(
    recording: str, *words: str, target: str = TARGET, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Counter[str]]:
    """What the command prints, and how often it asked for what."""
    monkeypatch.setattr(cloud_command, "connected", lambda _: player())
    # The recordings hold what `require` asks for; QoS of volume types is in others.
    monkeypatch.setattr(volume_types, "qos_of_types", lambda _: {"hdd": TypeQos(None, unseen=True)})
    with played(recording) as cassette:
        done = CliRunner().invoke(cloud_command.command, ["check", target, *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    asked: Counter[str] = Counter()
    for number, n_played in cassette.play_counts.items():
        asked[urlsplit(cassette.data[number][0].uri).path] += n_played
    return done.stdout, asked


def test_an_ordinary_user_is_told_what_could_not_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    said, _ = checked(BY_USER, "--clients", "2", monkeypatch=monkeypatch)
    (*_, last) = said.splitlines()
    assert "has what 2 clients with volumes of 1 GiB need, as far as it could be checked: Nova shows only" in last
    assert "; Cinder shows only administrators the capacity of its pools" in last
    assert said.count("shows only administrators") == 2, "each once"


def test_a_host_that_could_not_be_looked_at_is_told_whatever_may_be_promised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cloud_preflight, "require_zone", lambda _cloud, zone: f"{zone} was not checked")
    for more in ("", ",overcommit=yes"):
        said, _ = checked(BY_USER, target=f"{TARGET},zone=nova:compute1{more}", monkeypatch=monkeypatch)
        assert "as far as it could be checked: nova:compute1 was not checked; Nova" in said.splitlines()[-1]
    with played(BY_USER):
        choice = parse_choice(f"{TARGET},zone=nova:compute1,overcommit=yes")
        found = cloud_preflight.require(player(), choice, [Wanted("hdd", 1)], nbytes=1, pools=None)
    assert found.unseen == ("nova:compute1 was not checked",), "a sweep says so, too"


def test_an_administrator_is_told_that_all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    said, _ = checked(BY_ADMINISTRATOR, monkeypatch=monkeypatch)
    assert said.splitlines()[-1].endswith(" has what 1 client with 1 GiB needs")


def test_what_overcommit_allows_is_told_as_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab has two processors, and its pools have some GiB free."""
    words = ("--clients", "3", "--volume-size", "100G")
    with pytest.raises(ClusterError, match="the compute hosts have processors free for 2"):
        checked(BY_ADMINISTRATOR, *words, monkeypatch=monkeypatch)
    allowed = f"{TARGET},overcommit=yes"
    said, _ = checked(BY_ADMINISTRATOR, *words, target=allowed, monkeypatch=monkeypatch)
    last = said.splitlines()[-1]
    assert (
        "has less than what 3 clients with volumes of 100 GiB need, and overcommit=yes allows that: 3 more" in last
    )
    assert "; there is too little capacity: 3 volumes of type hdd need 330G" in last
    said, _ = checked(BY_ADMINISTRATOR, *words, "--json", target=allowed, monkeypatch=monkeypatch)
    document = json.loads(said)
    assert (document["guests_that_fit"], len(document["scarce"]), document["unseen"]) == (2, 2, [])


@pytest.mark.parametrize("recording", [BY_USER, BY_ADMINISTRATOR])
def test_quotas_hosts_and_pools_are_asked_for_once(recording: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = checked(recording, monkeypatch=monkeypatch)
    for words in (
        "/v2.1/limits",
        "/os-quota-sets/",
        "/quotas/",
        "/os-hypervisors/",
        "/get_pools",
        "/flavors/detail",
    ):
        assert [n for path, n in asked.items() if words in path] == [1], words


def test_quotas_that_are_not_shown_are_told(services: Services, scripted_cloud: Connection) -> None:
    """Cinder shows no more than its limits here, and Neutron no use of its quotas at all."""
    for service in ("compute/v2.1", "block_storage/v3"):
        services.say(f"GET /{service}/limits", (200, {"limits": {"absolute": {}, "rate": []}}))
    flavor = type("Flavor", (), {"vcpus": 1, "ram": 512})
    wanted = [Wanted("hdd", 2)]
    asked = asked_of(scripted_cloud, flavor, wanted, gib=1, has_network=True)
    assert [said.partition(" does not show this user ")[0] for said in asked.unseen] == ["Cinder", "Neutron"]
    assert {need.quota.partition("'")[0] for need in asked.needs} == {"Nova", "Cinder"}
    assert len(asked_of(scripted_cloud, flavor, wanted, gib=1, has_network=False).unseen) == 1
    assert Findings(unseen=("unknown",)).verdict("work", "what 2 clients need") == (
        "work has what 2 clients need, as far as it could be checked: unknown"
    )
    both = Findings(scarce=("too few",), unseen=("unknown",)).verdict("work", "what 2 clients need")
    assert both.endswith("overcommit=yes allows that: too few. Not everything could be checked: unknown")
