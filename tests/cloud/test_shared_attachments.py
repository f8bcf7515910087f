"""Volumes for several guests: which types allow it, and the attachments by Nova."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from openstack.connection import Connection
from scripted_services import Services

from cephfit.cloud.cloud_choice import parse_choice
from cephfit.cloud.cloud_preflight import Findings
from cephfit.cloud.free_capacity import Wanted
from cephfit.cloud.stacks import Stacks
from cephfit.cloud.volumes.shared_attachments import attach_to_all, require_multiattach
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.values.configuration import Configuration
from cephfit.targets import openstack_target
from cephfit.targets.openstack_target import SharedVolumeTarget

TYPES = [
    {"id": "t0", "name": "plain", "extra_specs": {"volume_backend_name": "hdd"}},
    {"id": "t1", "name": "shared", "extra_specs": {"volume_backend_name": "hdd", "multiattach": "<is> True"}},
    {"id": "t2", "name": "no", "extra_specs": {"multiattach": "<is> False"}},
    {"id": "t3", "name": "hidden"},
]


@pytest.mark.parametrize("name", ["plain", "no", "hidden", "missing"])
def test_another_type_is_refused_and_the_right_ones_are_named(
    services: Services, scripted_cloud: Connection, name: str
) -> None:
    services.say("GET /block_storage/v3/types", (200, {"volume_types": TYPES}))
    with pytest.raises(InputError, match=rf"(?s){name} has no extra spec multiattach.*choose from: shared"):
        require_multiattach(scripted_cloud, name)
    require_multiattach(scripted_cloud, "shared")


def test_without_such_a_type_an_administrator_has_to_be_asked(
    services: Services, scripted_cloud: Connection
) -> None:
    services.say("GET /block_storage/v3/types", (200, {"volume_types": TYPES[:1]}))
    with pytest.raises(InputError, match="ask an administrator"):
        require_multiattach(scripted_cloud, "plain")


def test_the_preflight_counts_one_volume_for_all_guests(
    services: Services, scripted_cloud: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of five guests of one kind are there, with their volume."""
    found: list[Wanted] = []

    def require(*arguments: Any, **_: Any) -> Findings:
        found.extend(arguments[2])
        return Findings()

    services.say("GET /block_storage/v3/types", (200, {"volume_types": TYPES}))
    monkeypatch.setattr(openstack_target, "connect", lambda _: scripted_cloud)
    monkeypatch.setattr(openstack_target, "state_folder", lambda _: tmp_path)
    monkeypatch.setattr(openstack_target.cloud_preflight, "require", require)
    target = SharedVolumeTarget(parse_choice("openstack:work,flavor=small,network=lab,volume_type=shared"))
    try:
        for n_there, n_volumes in ((0, 1), (2, 0)):
            monkeypatch.setattr(Stacks, "count", lambda *_, n=n_there: n)
            target.require_clients([Configuration("A")], n_clients=5, volume_nbytes=1 << 30)
            wanted = found.pop()
            assert (wanted.n_more, wanted.n_more_volumes) == (5 - n_there, n_volumes)
    finally:
        target.close()


def attachments(server: str, *volumes: str) -> dict[str, object]:
    return {"volumeAttachments": [{"id": v, "volumeId": v, "serverId": server} for v in volumes]}


def test_only_servers_without_the_volume_get_it_and_all_are_waited_for(
    services: Services, scripted_cloud: Connection, no_waiting: None
) -> None:
    services.say("GET /compute/v2.1/servers/s0/os-volume_attachments", (200, attachments("s0", "v")))
    services.say("GET /compute/v2.1/servers/s1/os-volume_attachments", (200, attachments("s1", "other")))
    services.say(
        "POST /compute/v2.1/servers/s1/os-volume_attachments",
        (200, {"volumeAttachment": {"id": "v", "volumeId": "v", "serverId": "s1"}}),
    )
    one = {"id": "v", "status": "in-use", "attachments": [{"server_id": "s0"}]}
    both = {**one, "attachments": [{"server_id": "s0"}, {"server_id": "s1"}]}
    answers = [(200, {"volume": shown}) for shown in (one, {**both, "status": "attaching"}, both)]
    services.say("GET /block_storage/v3/volumes/v", *answers)
    attach_to_all(scripted_cloud, "v", ["s0", "s1"])
    assert services.n_asked("POST /compute/v2.1/servers/s1/os-volume_attachments") == 1
    assert services.n_asked("POST /compute/v2.1/servers/s0/os-volume_attachments") == 0
    assert services.n_asked("GET /block_storage/v3/volumes/v") == 3, "the second attachment was waited for"


def test_no_attachment_is_asked_for_before_the_last_one_is_complete(
    services: Services, scripted_cloud: Connection
) -> None:
    """Cinder refuses one while the volume is reserved for another."""
    services.say("GET /compute/v2.1/servers/s0/os-volume_attachments", (200, attachments("s0", "v")))
    reserved = {"id": "v", "status": "reserved", "attachments": []}
    services.say("GET /block_storage/v3/volumes/v", (200, {"volume": reserved}))
    with pytest.raises(ClusterError, match="not attached to server s0 after 0 s: its status is reserved"):
        attach_to_all(scripted_cloud, "v", ["s0", "s1"], seconds=0.1)
    assert not [question for question in services.asked if "s1" in question]


def test_a_refusal_of_nova_is_passed_on(services: Services, scripted_cloud: Connection) -> None:
    services.say("GET /compute/v2.1/servers/s0/os-volume_attachments", (200, attachments("s0")))
    refusal = {"badRequest": {"message": "Multiattach volumes are not supported", "code": 400}}
    services.say("POST /compute/v2.1/servers/s0/os-volume_attachments", (400, refusal))
    with pytest.raises(ClusterError, match="Multiattach volumes are not supported"):
        attach_to_all(scripted_cloud, "v", ["s0"])
