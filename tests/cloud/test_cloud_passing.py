"""What passes by itself is asked again, and nothing is made twice: by HTTP, against services that are scripted."""

import re

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from openstack.connection import Connection
from scripted_services import BUSY, GATEWAY, GONE, Answer, Services

from cephfit.cloud import stacks
from cephfit.cloud.guests import guest_jobs
from cephfit.cloud.guests.guest_jobs import GuestJobs, Handle
from cephfit.cloud.guests.guests import ServerDiagnostics
from cephfit.cloud.ownership import own_name
from cephfit.cloud.stacks import Node
from cephfit.cloud.volumes import cinder_volumes, volume_types
from cephfit.cloud.volumes.volume_types import Qos
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client

pytestmark = pytest.mark.usefixtures("no_waiting")

RUN = "mine-20261122T040000-abcd"


def sentence(error: "pytest.ExceptionInfo[ClusterError]") -> str:
    """One line without addresses, tags and braces."""
    said = error.value.what
    assert not re.search(r"[\n<>{}]|https?:|req-", said), said
    return said


METADATA = "GET /orchestration/v1/stacks/s/1/resources/ready_handle/metadata"
HANDLE = Handle("/stacks/s/1/resources/ready_handle", "http://heat/signal", "secret")


@pytest.mark.parametrize("trouble", [GATEWAY, BUSY, (500, {"error": {"message": "database", "type": "DBError"}})])
def test_a_signal_is_waited_for_across_a_service_in_trouble(
    services: Services, scripted_cloud: Connection, trouble: Answer
) -> None:
    services.say(METADATA, trouble, trouble, (200, {"metadata": {"key": {"data": "0 1.0 2.0 packed"}}}))
    assert guest_jobs.received(scripted_cloud, HANDLE, "key") == "0 1.0 2.0 packed"
    assert services.n_asked(METADATA) == 3


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (GATEWAY, "502 Bad Gateway"),
        ((500, {"error": {"message": "no database", "type": "DBError"}}), "no database"),
        ((200, GATEWAY[1]), "the answer is not JSON: 502 Bad Gateway"),
    ],
)
def test_a_service_that_stays_in_trouble_is_one_sentence(
    services: Services, scripted_cloud: Connection, trouble: Answer, words: str
) -> None:
    services.say(METADATA, trouble)
    with pytest.raises(ClusterError) as error:
        guest_jobs.received(scripted_cloud, HANDLE, "key")
    assert words in sentence(error)


def test_why_a_stack_failed_is_told_across_a_service_in_trouble(
    services: Services, scripted_cloud: Connection
) -> None:
    """Heat, and Cinder that knows more of a volume."""
    stack, of_stack = {"stack": {"id": "1", "stack_name": "s"}}, "GET /orchestration/v1/stacks/s/1/resources"
    services.say("GET /orchestration/v1/stacks/s", GATEWAY, (200, stack))
    failed = {
        "resource_type": "OS::Cinder::Volume",
        "resource_name": "volume",
        "resource_status": "CREATE_FAILED",
        "resource_status_reason": "ResourceInError: resources.volume: Went to status error due to Unknown",
        "physical_resource_id": "v",
    }
    services.say(of_stack, GATEWAY, (200, {"resources": [failed]}))
    said = {"messages": [{"user_message": "schedule allocate volume: Could not find any available backend"}]}
    services.say("GET /block_storage/v3/messages", GATEWAY, (200, said))
    (why,) = stacks.failures(scripted_cloud, "s")
    assert why.endswith("(Cinder: schedule allocate volume: Could not find any available backend)")
    services.say("GET /block_storage/v3/messages", (406, {"message": "no such version"}))
    assert stacks.failures(scripted_cloud, "s") == (
        "OS::Cinder::Volume volume: Went to status error due to Unknown",
    )


ACTION, SERVER = "POST /compute/v2.1/servers/srv/action", "GET /compute/v2.1/servers/srv"
ACTIONS = f"{SERVER}/os-instance-actions"


def rebuild(cloud: Connection) -> None:
    GuestJobs(cloud, "image", {}, {})._rebuild("srv", "image-id", "#!/bin/sh\n")


def test_a_rebuild_whose_answer_was_lost_is_not_asked_for_again(
    services: Services, scripted_cloud: Connection
) -> None:
    services.say(ACTION, GATEWAY)
    services.say(SERVER, (200, {"server": {"id": "srv", "status": "REBUILD"}}))
    rebuild(scripted_cloud)
    assert services.n_asked(ACTION) == 1


def actions(*names: str) -> Answer:
    # As Nova answers for GET /servers/ID/os-instance-actions, the newest first.
    return 200, {"instanceActions": [{"action": name, "instance_uuid": "srv"} for name in names]}


def test_a_rebuild_that_is_over_before_its_answer_is_missed_is_not_asked_for_again(
    services: Services, scripted_cloud: Connection
) -> None:
    """Asked for again, it would cut off the job that runs by then, and run it twice."""
    services.say(ACTION, GATEWAY)
    services.say(SERVER, (200, {"server": {"id": "srv", "status": "ACTIVE"}}))
    services.say(ACTIONS, actions("rebuild", "create"), actions("rebuild", "rebuild", "create"))
    rebuild(scripted_cloud)
    assert services.n_asked(ACTION) == 1


def test_the_rebuild_of_the_job_before_is_not_taken_for_this_one(
    services: Services, scripted_cloud: Connection
) -> None:
    services.say(ACTION, GATEWAY, (202, {"server": {"id": "srv"}}))
    services.say(ACTIONS, actions("rebuild", "create"))
    rebuild(scripted_cloud)
    assert services.n_asked(ACTION) == 2


def test_a_rebuild_that_nobody_heard_of_is_asked_for_again(services: Services, scripted_cloud: Connection) -> None:
    services.say(ACTION, GATEWAY, BUSY, (202, {"server": {"id": "srv"}}))
    services.say(SERVER, (200, {"server": {"id": "srv", "status": "ACTIVE"}}))
    rebuild(scripted_cloud)
    assert services.n_asked(ACTION) == 3


def test_why_a_server_is_not_rebuilt_is_novas_own_reason(services: Services, scripted_cloud: Connection) -> None:
    locked = {"conflictingRequest": {"code": 409, "message": "Instance srv is locked"}}
    services.say(ACTION, (409, locked))
    with pytest.raises(ClusterError) as error:
        rebuild(scripted_cloud)
    assert sentence(error) == "the server cannot be rebuilt: Instance srv is locked"
    assert services.n_asked(ACTION) == 1


def test_what_the_hypervisor_counts_is_asked_for_again(services: Services, scripted_cloud: Connection) -> None:
    attached = {"volumeAttachments": [{"volumeId": "v", "serverId": "srv", "device": "/dev/vdb", "id": "v"}]}
    services.say("GET /compute/v2.1/servers/srv/os-volume_attachments", GATEWAY, (200, attached))
    counts = "GET /compute/v2.1/servers/srv/diagnostics"
    services.say(counts, GATEWAY, BUSY, (200, {"vdb_read": 4096, "vdb_write": 512}), (503, GATEWAY[1]))
    diagnostics = ServerDiagnostics(scripted_cloud, [Node("c0", "srv", "v", "")])
    moved = diagnostics.moved(Client("c0", {}, 1))
    assert (moved.read_nbytes, moved.written_nbytes) == (4096, 512)
    with pytest.raises(ClusterError) as error:
        diagnostics.moved(Client("c0", {}, 1))
    sentence(error)
    services.say(counts, (200, GATEWAY[1]))
    with pytest.raises(ClusterError, match="the hypervisor does not count the I/O of disk vdb"):
        diagnostics.moved(Client("c0", {}, 1))


def test_a_volume_type_and_its_spec_are_made_once_although_answers_are_lost(
    services: Services, scripted_cloud: Connection
) -> None:
    name = own_name(RUN, "hdd-qos")
    spec, base = {"id": "q", "name": name}, {"id": "t0", "name": "hdd", "extra_specs": {}}
    made = {"id": "t1", "name": name, "extra_specs": {volume_types.RUN_SPEC: RUN}}
    storage = "/block_storage/v3"
    services.say(f"GET {storage}/qos-specs", (200, {"qos_specs": []}), (200, {"qos_specs": [spec]}))
    services.say(f"POST {storage}/qos-specs", GATEWAY)
    services.say(
        f"GET {storage}/types", (200, {"volume_types": [base]}), GATEWAY, (200, {"volume_types": [base, made]})
    )
    services.say(f"POST {storage}/types", GATEWAY)
    services.say(f"POST {storage}/types/t1/action", GATEWAY, (409, {"conflictingRequest": {"message": "has it"}}))
    services.say(f"GET {storage}/qos-specs/q/associate", GATEWAY, (202, {}))
    volume_types.ensure(scripted_cloud, RUN, name, "hdd", Qos(name, "front-end", {"total_iops_sec": "60"}))
    for question in (f"POST {storage}/qos-specs", f"POST {storage}/types"):
        assert services.n_asked(question) == 1
    services.say(f"GET {storage}/types", (200, {"volume_types": [made]}))
    services.say(f"DELETE {storage}/types/t1", GATEWAY, GONE)
    services.say(f"DELETE {storage}/qos-specs/q", BUSY, (202, {}))
    volume_types.delete(scripted_cloud, RUN, name)
    assert services.n_asked(f"DELETE {storage}/qos-specs/q") == 2


def test_a_volume_is_told_what_it_holds_across_a_service_in_trouble(
    services: Services, scripted_cloud: Connection
) -> None:
    volume, metadata = "GET /block_storage/v3/volumes/v", "POST /block_storage/v3/volumes/v/metadata"
    old = {"cephfit_note_trace_00": "old"}
    services.say(
        volume, (200, {"volume": {"id": "v", "metadata": old}}), (200, {"volume": {"id": "v", "metadata": {}}})
    )
    # The answer to what took the old note away was lost.
    services.say("DELETE /block_storage/v3/volumes/v/metadata/cephfit_note_trace_00", GATEWAY)
    services.say(metadata, GATEWAY, BUSY, (200, {"metadata": {}}))
    cinder_volumes.set_note(scripted_cloud, "v", "trace", "new")
    assert services.n_asked(metadata) == 3
