"""The cloud's edge against what real OpenStacks said; tests/cloud/record_cloud.py records it."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")
pytest.importorskip("vcr", reason="needs vcrpy")

from live_cloud import make_stack
from openstack.connection import Connection
from recorded_cloud import FOLDER, PASSWORD, TOKEN, played, player

from cephfit.cloud import cloud_cleanup
from cephfit.cloud.cloud_choice import CloudChoice
from cephfit.cloud.cloud_connection import connect, persistently
from cephfit.cloud.guests import guests
from cephfit.cloud.guests.guests import ServerDiagnostics, places_of
from cephfit.cloud.owned_resources import owned
from cephfit.cloud.volumes.cinder_volumes import unfilled
from cephfit.cloud.volumes.volume_types import qos_of_types
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import NullProgress

pytestmark = pytest.mark.usefixtures("recorded_release")

RUN = "recorded"
CHOICE = CloudChoice(flavor="cephfit.tiny", volume_type="hdd", network="lab", overcommit=True)
SCRIPT = "#!/bin/sh\n"
TOO_LARGE = "cephfit-tests.too-large"
NOWHERE = "cephfit-tests-nowhere"
TYPES = {
    "zed": ["ssd", "hdd", "__DEFAULT__"],
    "2025.1": ["hdd-multiattach", "ssd-multiattach", "ssd", "hdd", "__DEFAULT__"],
}
"""Volume types of the labs that were recorded, by release."""
CAPPED = "cephfit-tests-capped"


@pytest.fixture(autouse=True)
def no_patience(no_waiting: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was waited for is in the recording."""
    monkeypatch.setattr(cloud_cleanup, "_STUCK_SECONDS", 0.0)
    monkeypatch.setattr(cloud_cleanup, "_STUCK_DELETING_SECONDS", 0.0)


def error_of(call: Callable[[], Any]) -> str:
    """What a person reads."""
    try:
        call()
    except (ClusterError, InputError) as error:
        return str(error)
    raise AssertionError("no error")


# Each scenario is what was done when it was recorded, and what is done again when it is played.


def made_and_scaled(cloud: Connection) -> dict[str, Any]:
    one = make_stack(cloud, RUN, count=1, user_data=SCRIPT)
    two = make_stack(cloud, RUN, count=2, user_data=SCRIPT)
    client = guests.client_of(two[0], port=CHOICE.port, nbytes=1)
    moved = ServerDiagnostics(cloud, two).moved(client)
    return {
        "one": one,
        "two": two,
        "places": places_of(cloud, two),
        "empty": unfilled(cloud, two, 1),
        "moved": moved,
    }


def cleaned(cloud: Connection) -> dict[str, Any]:
    kinds = [thing.kind for thing in owned(cloud, RUN)]
    gone, left = cloud_cleanup.clean(cloud, RUN, NullProgress())
    return {"kinds": kinds, "gone": gone, "left": left, "after": owned(cloud, RUN)}


def stack_error(**more: Any) -> Callable[[Connection], str]:
    return lambda cloud: error_of(lambda: make_stack(cloud, RUN, user_data=SCRIPT, **more))


def volume_types(cloud: Connection) -> list[str]:
    return [t.name for t in persistently(lambda: list(cloud.block_storage.types()), where="volume types")]


def in_between(cloud: Connection, trouble: Callable[[], None]) -> tuple[list[str], list[str]]:
    first = volume_types(cloud)
    trouble()
    return first, volume_types(cloud)


def failing(cloud: Connection, trouble: Callable[[], None], help_: Callable[[], None]) -> tuple[str, list[str]]:
    volume_types(cloud)
    trouble()
    said = error_of(lambda: volume_types(cloud))
    help_()
    return said, volume_types(cloud)


def stuck(cloud: Connection) -> list[str]:
    return [left.why for left in cloud_cleanup.clean(cloud, RUN, NullProgress())[1]]


def test_made_and_scaled(played_cloud: Connection) -> None:
    """The first server stays when there come to be two; all are where Nova says, their volumes still empty."""
    found = made_and_scaled(played_cloud)
    assert found["two"][:1] == found["one"]
    assert [node.name for node in found["two"]] == ["c0", "c1"]
    assert {place.host for place in found["places"].values()} == {"vm"}
    assert found["empty"] == list(found["two"])
    assert found["moved"].written_nbytes >= 0


def test_cleaned(played_cloud: Connection) -> None:
    """The stack takes everything of its own with it; what it lost sight of goes after it."""
    found = cleaned(played_cloud)
    assert found["kinds"] == [
        *("stack", "server", "server", "port", "port", "security group", "server group"),
        *("volume", "volume", "volume"),
    ]
    assert [thing.kind for thing in found["gone"]] == ["stack", "volume"]
    assert (found["left"], found["after"]) == ((), ())


def test_stuck(played_cloud: Connection) -> None:
    """Cinder does not delete a volume that it thinks it is deleting; an ordinary user cannot tell it otherwise."""
    (why,) = stuck(played_cloud)
    assert why.startswith("it stays deleting, and only an administrator can free it: openstack volume set")


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("no_valid_host", {"flavor": TOO_LARGE}, "No valid host was found"),
        ("over_quota", {}, "Quota exceeded for instances: Requested 1, but already used 0 of 0 instances"),
        ("no_back_end", {"volume_type": NOWHERE}, "Cinder: "),
        ("no_image", {"image": "cephfit-tests-gone"}, "cephfit-tests-gone"),
    ],
)
def test_a_stack_that_cannot_be_made_says_why(name: str, more: dict[str, Any], words: str) -> None:
    with played(name):
        said = stack_error(**more)(player())
    assert words in said
    for noise in ("http://", "req-", "Traceback"):
        assert noise not in said


def test_a_wrong_password_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {
        "AUTH_URL": "http://127.0.0.1:5000/v3",
        "USERNAME": "cephfit",
        "PASSWORD": PASSWORD,
    }.items():
        monkeypatch.setenv(f"OS_{key}", value)
    for key in ("PROJECT_NAME", "USER_DOMAIN_NAME", "PROJECT_DOMAIN_NAME"):
        monkeypatch.setenv(f"OS_{key}", "default")
    with played("wrong_password"), pytest.raises(ClusterError) as error:
        connect("")
    assert error.value.what == "Keystone refuses the log-in: The request you have made requires authentication"


def test_a_revoked_token_is_replaced(recorded_release: str) -> None:
    """The second question is answered 401, then Keystone is asked for a token, and the question put again."""
    with played("revoked"):
        first, second = in_between(player(), lambda: None)
    assert first == second == TYPES[recorded_release]


def test_a_service_in_trouble_is_asked_again_and_then_named(recorded_release: str) -> None:
    with played("in_trouble"):
        said, later = failing(player(), lambda: None, lambda: None)
    assert "\n" not in said.partition("\n  ")[0]
    assert "volume types" in said
    assert later == TYPES[recorded_release]


@pytest.mark.parametrize(("name", "unseen"), [("qos_by_administrator", False), ("qos_by_user", True)])
def test_qos_of_volume_types(name: str, unseen: bool) -> None:
    with played(name):
        found = qos_of_types(player())[CAPPED]
    assert found.unseen is unseen
    if found.qos is not None:
        assert found.qos.sentence(CAPPED) == (
            f"volumes of type {CAPPED} do at most 60 I/Os per second (reads and writes), each (by the hypervisor, "
            f"QoS spec {CAPPED}): what is faster is not seen"
        )


def test_recordings_hold_no_secrets() -> None:
    files = list(FOLDER.glob("*/*.yaml"))
    assert len(files) > 10
    for file in files:
        text = file.read_text()
        assert file.stat().st_size < 300_000, file
        for secret in ("gAAAA", "X-Auth-Token", "/tmp/"):
            assert secret not in text, f"{secret} in {file.name}"
        assert text.count("X-Subject-Token") == text.count(TOKEN)
