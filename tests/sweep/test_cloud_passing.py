"""What passes by itself is asked again, and nothing is made twice: by HTTP, against services that are scripted."""

import itertools
import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import openstack
import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from openstack.connection import Connection

from cephfit.errors import ClusterError
from cephfit.protocols import Client
from cephfit.silence import Silence
from cephfit.sweep.cloud import clean, own_types, signals, stack_failures, stuck, volumes
from cephfit.sweep.cloud.diagnostics import ServerDiagnostics
from cephfit.sweep.cloud.errands import Errands
from cephfit.sweep.cloud.owned import KINDS, runs
from cephfit.sweep.cloud.ownership import own_name
from cephfit.sweep.cloud.qos import Qos
from cephfit.sweep.cloud.signals import Handle
from cephfit.sweep.cloud.stacks import Node

PAGE = "<html><head><title>502 Bad Gateway</title></head>\n<body><h1>502 Bad Gateway</h1></body></html>"
GATEWAY, BUSY = (502, PAGE), (429, "<html>429 Too Many Requests</html>")
RUN = "mine-20261122T040000-abcd"
Answer = tuple[int, Any]


class Services(ThreadingHTTPServer):
    """All services of a cloud at one address. What is asked for is answered by its script, the last line again."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scripts: dict[str, list[Answer]] = {}
        self.asked: list[str] = []
        self.ahead = timedelta()

    def say(self, question: str, *answers: Answer) -> None:
        """What a question (``GET /volumes``) is answered, each time it is put."""
        self.scripts[question] = list(answers)

    def n_asked(self, question: str) -> int:
        return self.asked.count(question)


class _Handler(BaseHTTPRequestHandler):
    server: Services
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        question = f"{self.command} {self.path.partition('?')[0]}"
        self.server.asked.append(question)
        script = self.server.scripts.get(question, [(404, {"itemNotFound": {"message": "gone", "code": 404}})])
        status, said = script.pop(0) if len(script) > 1 else script[0]
        text = (said if isinstance(said, str) else json.dumps(said)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if isinstance(said, str) else "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string((datetime.now(UTC) + self.server.ahead).timestamp())

    def log_message(self, format: str, *words: Any) -> None:
        """Nobody reads it."""


for _method in ("GET", "POST", "PUT", "DELETE"):
    setattr(_Handler, f"do_{_method}", _Handler._answer)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)


@pytest.fixture
def services() -> Iterator[Services]:
    with Services() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def cloud(services: Services) -> Iterator[Connection]:
    url = f"http://127.0.0.1:{services.server_address[1]}"
    names = ("compute", "block_storage", "orchestration", "network", "image")
    versions = {"compute": "2.1", "block_storage": "3", "orchestration": "1", "network": "2", "image": "2"}
    connection = openstack.connect(
        auth_type="none",
        auth={"endpoint": url},
        **{f"{name}_endpoint_override": f"{url}/{name}/v{versions[name]}" for name in names},
        **{f"{name}_api_version": versions[name] for name in names},
    )
    for name in names:
        version = {"id": f"v{versions[name]}.0", "status": "CURRENT", "version": "99.99", "min_version": "1.0"}
        links = {"links": [{"rel": "self", "href": f"{url}/{name}/v{versions[name]}/"}]}
        for end in ("", "/"):
            services.say(f"GET /{name}/v{versions[name]}{end}", (200, {"version": {**version, **links}}))
    yield connection
    connection.close()


def sentence(error: "pytest.ExceptionInfo[ClusterError]") -> str:
    """One line without addresses, tags and braces."""
    said = error.value.what
    assert not re.search(r"[\n<>{}]|https?:|req-", said), said
    return said


METADATA = "GET /orchestration/v1/stacks/s/1/resources/ready_handle/metadata"
HANDLE = Handle("/stacks/s/1/resources/ready_handle", "http://heat/signal", "secret")


@pytest.mark.parametrize("trouble", [GATEWAY, BUSY, (500, {"error": {"message": "database", "type": "DBError"}})])
def test_a_signal_is_waited_for_across_a_service_in_trouble(
    services: Services, cloud: Connection, trouble: Answer
) -> None:
    services.say(METADATA, trouble, trouble, (200, {"metadata": {"key": {"data": "0 1.0 2.0 packed"}}}))
    assert signals.received(cloud, HANDLE, "key") == "0 1.0 2.0 packed"
    assert services.n_asked(METADATA) == 3


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (GATEWAY, "502 Bad Gateway"),
        ((500, {"error": {"message": "no database", "type": "DBError"}}), "no database"),
        ((200, PAGE), "the answer is no JSON: 502 Bad Gateway"),
    ],
)
def test_a_service_that_stays_in_trouble_is_one_sentence(
    services: Services, cloud: Connection, trouble: Answer, words: str
) -> None:
    services.say(METADATA, trouble)
    with pytest.raises(ClusterError) as error:
        signals.received(cloud, HANDLE, "key")
    assert words in sentence(error)


def test_why_a_stack_failed_is_told_across_a_service_in_trouble(services: Services, cloud: Connection) -> None:
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
    (why,) = stack_failures.failures(cloud, "s")
    assert why.endswith("(Cinder: schedule allocate volume: Could not find any available backend)")
    services.say("GET /block_storage/v3/messages", (406, {"message": "no such version"}))
    assert stack_failures.failures(cloud, "s") == (
        "OS::Cinder::Volume volume: Went to status error due to Unknown",
    )


ACTION, SERVER = "POST /compute/v2.1/servers/srv/action", "GET /compute/v2.1/servers/srv"
ACTIONS = f"{SERVER}/os-instance-actions"


def rebuild(cloud: Connection) -> None:
    Errands(cloud, "image", {}, {})._rebuild("srv", "image-id", "#!/bin/sh\n")


def test_a_rebuild_whose_answer_was_lost_is_not_asked_for_again(services: Services, cloud: Connection) -> None:
    services.say(ACTION, GATEWAY)
    services.say(SERVER, (200, {"server": {"id": "srv", "status": "REBUILD"}}))
    rebuild(cloud)
    assert services.n_asked(ACTION) == 1


def actions(*names: str) -> Answer:
    # As Nova answers for GET /servers/ID/os-instance-actions, the newest first.
    return 200, {"instanceActions": [{"action": name, "instance_uuid": "srv"} for name in names]}


def test_a_rebuild_that_is_over_before_its_answer_is_missed_is_not_asked_for_again(
    services: Services, cloud: Connection
) -> None:
    """Asked for again, it would cut off the job that runs by then, and run it twice."""
    services.say(ACTION, GATEWAY)
    services.say(SERVER, (200, {"server": {"id": "srv", "status": "ACTIVE"}}))
    services.say(ACTIONS, actions("rebuild", "create"), actions("rebuild", "rebuild", "create"))
    rebuild(cloud)
    assert services.n_asked(ACTION) == 1


def test_the_rebuild_of_the_job_before_is_not_taken_for_this_one(services: Services, cloud: Connection) -> None:
    services.say(ACTION, GATEWAY, (202, {"server": {"id": "srv"}}))
    services.say(ACTIONS, actions("rebuild", "create"))
    rebuild(cloud)
    assert services.n_asked(ACTION) == 2


def test_a_rebuild_that_nobody_heard_of_is_asked_for_again(services: Services, cloud: Connection) -> None:
    services.say(ACTION, GATEWAY, BUSY, (202, {"server": {"id": "srv"}}))
    services.say(SERVER, (200, {"server": {"id": "srv", "status": "ACTIVE"}}))
    rebuild(cloud)
    assert services.n_asked(ACTION) == 3


def test_why_a_server_is_not_rebuilt_is_novas_own_reason(services: Services, cloud: Connection) -> None:
    locked = {"conflictingRequest": {"code": 409, "message": "Instance srv is locked"}}
    services.say(ACTION, (409, locked))
    with pytest.raises(ClusterError) as error:
        rebuild(cloud)
    assert sentence(error) == "it cannot be rebuilt: Instance srv is locked"
    assert services.n_asked(ACTION) == 1


def test_what_the_hypervisor_counts_is_asked_for_again(services: Services, cloud: Connection) -> None:
    attached = {"volumeAttachments": [{"volumeId": "v", "serverId": "srv", "device": "/dev/vdb", "id": "v"}]}
    services.say("GET /compute/v2.1/servers/srv/os-volume_attachments", GATEWAY, (200, attached))
    counts = "GET /compute/v2.1/servers/srv/diagnostics"
    services.say(counts, GATEWAY, BUSY, (200, {"vdb_read": 4096, "vdb_write": 512}), (503, PAGE))
    diagnostics = ServerDiagnostics(cloud, [Node("c0", "srv", "v", "")])
    moved = diagnostics.moved(Client("c0", {}, 1))
    assert (moved.read_nbytes, moved.written_nbytes) == (4096, 512)
    with pytest.raises(ClusterError) as error:
        diagnostics.moved(Client("c0", {}, 1))
    sentence(error)
    services.say(counts, (200, PAGE))
    with pytest.raises(ClusterError, match="the hypervisor does not say what disk vdb moved"):
        diagnostics.moved(Client("c0", {}, 1))


def test_a_volume_type_and_its_spec_are_made_once_although_answers_are_lost(
    services: Services, cloud: Connection
) -> None:
    name = own_name(RUN, "hdd-qos")
    spec, base = {"id": "q", "name": name}, {"id": "t0", "name": "hdd", "extra_specs": {}}
    made = {"id": "t1", "name": name, "extra_specs": {own_types.RUN_SPEC: RUN}}
    storage = "/block_storage/v3"
    services.say(f"GET {storage}/qos-specs", (200, {"qos_specs": []}), (200, {"qos_specs": [spec]}))
    services.say(f"POST {storage}/qos-specs", GATEWAY)
    services.say(
        f"GET {storage}/types", (200, {"volume_types": [base]}), GATEWAY, (200, {"volume_types": [base, made]})
    )
    services.say(f"POST {storage}/types", GATEWAY)
    services.say(f"POST {storage}/types/t1/action", GATEWAY, (409, {"conflictingRequest": {"message": "has it"}}))
    services.say(f"GET {storage}/qos-specs/q/associate", GATEWAY, (202, {}))
    own_types.ensure(cloud, RUN, name, "hdd", Qos(name, "front-end", {"total_iops_sec": "60"}))
    for question in (f"POST {storage}/qos-specs", f"POST {storage}/types"):
        assert services.n_asked(question) == 1
    services.say(f"GET {storage}/types", (200, {"volume_types": [made]}))
    services.say(f"DELETE {storage}/types/t1", GATEWAY, (404, {"itemNotFound": {"message": "gone"}}))
    services.say(f"DELETE {storage}/qos-specs/q", BUSY, (202, {}))
    own_types.delete(cloud, RUN, name)
    assert services.n_asked(f"DELETE {storage}/qos-specs/q") == 2


def test_a_volume_is_told_what_it_holds_across_a_service_in_trouble(services: Services, cloud: Connection) -> None:
    volume, metadata = "GET /block_storage/v3/volumes/v", "POST /block_storage/v3/volumes/v/metadata"
    old = {"cephfit_note_trace_00": "old"}
    services.say(
        volume, (200, {"volume": {"id": "v", "metadata": old}}), (200, {"volume": {"id": "v", "metadata": {}}})
    )
    # The answer to what took the old note away was lost.
    services.say("DELETE /block_storage/v3/volumes/v/metadata/cephfit_note_trace_00", GATEWAY)
    services.say(metadata, GATEWAY, BUSY, (200, {"metadata": {}}))
    volumes.set_note(cloud, "v", "trace", "new")
    assert services.n_asked(metadata) == 3


def a_volume(status: str, *, ago: timedelta) -> Answer:
    changed = (datetime.now(UTC) - ago).replace(tzinfo=None).isoformat()
    return 200, {"volume": {"id": "v", "status": status, "attachments": [], "updated_at": changed}}


def test_a_volume_that_is_being_deleted_gets_minutes_from_when_that_began(
    services: Services, cloud: Connection
) -> None:
    """A large image takes the storage a while: whoever resets its status meanwhile is in the way."""
    volume, reset = "GET /block_storage/v3/volumes/v", "POST /block_storage/v3/volumes/v/action"
    services.say(reset, GATEWAY, (202, {}))
    gone = (404, {"itemNotFound": {"message": "gone"}})
    services.say(volume, *[a_volume("deleting", ago=timedelta(minutes=5))] * 100, gone)
    assert stuck.free(cloud, "v", Silence()) == ""
    assert services.n_asked(volume) == 101
    assert services.n_asked(reset) == 0
    services.say(volume, a_volume("deleting", ago=timedelta(minutes=20)))
    assert stuck.free(cloud, "v", Silence()) == ""
    assert services.n_asked(reset) == 2, "nobody has worked on it for longer than anything takes"


@pytest.mark.parametrize("ahead", [timedelta(hours=-1), timedelta(hours=1)], ids=["behind", "ahead"])
def test_how_long_a_volume_is_being_deleted_is_told_by_the_clouds_clocks(
    services: Services, cloud: Connection, ahead: timedelta
) -> None:
    """This machine's is an hour off from them."""
    services.ahead = ahead
    volume, reset = "GET /block_storage/v3/volumes/v", "POST /block_storage/v3/volumes/v/action"
    services.say(reset, (202, {}))
    gone = (404, {"itemNotFound": {"message": "gone"}})
    services.say(volume, *[a_volume("deleting", ago=timedelta(minutes=5) - ahead)] * 5, gone)
    assert stuck.free(cloud, "v", Silence()) == ""
    assert (services.n_asked(volume), services.n_asked(reset)) == (6, 0)
    services.say(volume, a_volume("deleting", ago=timedelta(minutes=20) - ahead))
    assert stuck.free(cloud, "v", Silence()) == ""
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
    assert stuck._seconds_between(changed, asked) == seconds


def test_a_deletion_that_cinder_took_gets_as_long_as_one_that_goes_on_already(
    services: Services, cloud: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of an hour: an image that is gone after fourteen minutes is deleted, not left."""
    clock = itertools.count(0.0, 60.0)
    monkeypatch.setattr(clean, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    monkeypatch.setattr(clean, "KINDS", [kind for kind in KINDS if kind.name == "volume"])
    volume = {"id": "v", "name": f"cephfit-{RUN}-0", "status": "deleting", "metadata": {"cephfit_run": RUN}}
    services.say("GET /block_storage/v3/volumes/detail", (200, {"volumes": [volume]}))
    services.say("DELETE /block_storage/v3/volumes/v", (202, {}))
    gone = (404, {"itemNotFound": {"message": "gone"}})
    services.say("GET /block_storage/v3/volumes/v", *[(200, {"volume": volume})] * 14, gone)
    deleted, left = clean.clean(cloud, RUN, Silence())
    assert ([thing.id for thing in deleted], left) == (["v"], ())


def test_what_cannot_be_deleted_is_told_with_the_services_own_reason(
    services: Services, cloud: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [kind for kind in KINDS if kind.name == "volume"]
    monkeypatch.setattr(clean, "KINDS", kinds)
    volume = {"id": "v", "name": f"cephfit-{RUN}-0", "status": "available", "metadata": {"cephfit_run": RUN}}
    services.say("GET /block_storage/v3/volumes/detail", (200, {"volumes": [volume]}))
    services.say("DELETE /block_storage/v3/volumes/v", GATEWAY, (202, {}))
    services.say("GET /block_storage/v3/volumes/v", (200, {"volume": {**volume, "status": "error_deleting"}}))
    said = {"messages": [{"user_message": "delete volume: Driver failed to delete it"}]}
    services.say("GET /block_storage/v3/messages", (200, said))
    _, (left,) = clean.clean(cloud, RUN, Silence())
    assert left.why == ("it is still there, with status error_deleting: delete volume: Driver failed to delete it")


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
    services: Services, cloud: Connection, kind: str, thing: dict[str, str]
) -> None:
    asked = {
        "stack": ("orchestration/v1/stacks", "stacks"),
        "server": ("compute/v2.1/servers/detail", "servers"),
        "port": ("network/v2.0/ports", "ports"),
        "security group": ("network/v2.0/security-groups", "security_groups"),
        "server group": ("compute/v2.1/os-server-groups", "server_groups"),
        "volume": ("block_storage/v3/volumes/detail", "volumes"),
        "volume type": ("block_storage/v3/types", "volume_types"),
        "QoS spec": ("block_storage/v3/qos-specs", "qos_specs"),
    }
    others = {
        "security group": [{"id": "1", "name": f"cephfit-{RUN}", "description": "somebody's"}],
        "server group": [{"id": "2", "name": "cephfit-theirs"}],
        "port": [{"id": "3", "name": "cephfit-theirs-0"}],
        "QoS spec": [{"id": "4", "name": "cephfit-theirs-hdd-00000000"}],
    }
    for name, (path, key) in asked.items():
        mine = [{"id": "9", **thing}] if name == kind else []
        for at in {
            path,
            path.replace("network/v2.0", "network/v2/v2.0"),
            path.replace("network/v2.0", "network/v2"),
        }:
            services.say(f"GET /{at}", (200, {key: [*others.get(name, []), *mine]}))
    found = runs(cloud)
    assert {run_id: [(t.kind, t.id) for t in things] for run_id, things in found.items()} == {RUN: [(kind, "9")]}
