"""Errors of a cloud, each provoked for real on the lab's OpenStack: one clear sentence, or help by itself."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from live_cloud import MARKS, cephfit, make_stack, target_text, until
from openstack.connection import Connection

from cephfit.cloud.cloud_choice import parse_choice
from cephfit.cloud.cloud_cleanup import clean
from cephfit.cloud.cloud_connection import connect, persistently
from cephfit.cloud.owned_resources import owned
from cephfit.cloud.ownership import stack_name, tag_of
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import NullProgress
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.sample import State
from cephfit.lab.cluster import Lab
from cephfit.lab.daemons import processes
from cephfit.lab.openstack import cloud_resources
from cephfit.results.store.sample_store import Store
from cephfit.targets.openstack_target import OpenStackTarget

pytestmark = [*MARKS, pytest.mark.timeout(900)]

TOO_LARGE = "cephfit-tests.too-large"
NOWHERE = "cephfit-tests-nowhere"
TOKEN_SECONDS = 125
"""With less than 120 s left, keystoneauth asks for a new token before every call: all services would crawl."""
LONG = """
schema_version: 1
name: long
configurations: {A: {}}
measurement: {sizes: [4K], patterns: [randread], clients: 1, volume_size: 16M, repeats: 1, ramp_seconds: 0.5,
  run_seconds: 80, max_attempts: 1, cache: warm, seed: 3}
"""


def said(error: pytest.ExceptionInfo[ClusterError]) -> str:
    """One sentence: no traceback, no address, no request id."""
    text = error.value.what
    assert "\n" not in text
    for noise in ("Traceback", "http://", "req-", "HTTPConnectionPool"):
        assert noise not in text, text
    return text


@pytest.mark.takes(seconds=100)
def test_a_quota_that_others_used_up_meanwhile(
    cloud_user: Connection, cloud_admin: Connection, own_run: str
) -> None:
    """The check before found room; Nova and Cinder refuse all the same, and say why."""
    cloud_admin.compute.update_quota_set(cloud_user.current_project_id, instances=1)
    try:
        with pytest.raises(ClusterError) as error:
            make_stack(cloud_user, own_run, count=2)
    finally:
        cloud_admin.compute.update_quota_set(cloud_user.current_project_id, instances=24)
    assert "Quota exceeded for instances" in said(error)
    assert len(make_stack(cloud_user, own_run, count=1)) == 1, "the same command creates the failed stack again"
    cloud_admin.block_storage.update_quota_set(cloud_user.current_project_id, volumes=1)
    try:
        with pytest.raises(ClusterError) as error:
            make_stack(cloud_user, own_run, count=2)
    finally:
        cloud_admin.block_storage.update_quota_set(cloud_user.current_project_id, volumes=48)
    assert "exceeded" in said(error)
    servers = {thing.id for thing in owned(cloud_user, own_run) if thing.kind == "server"}
    nodes = make_stack(cloud_user, own_run, count=2)
    assert servers & {node.server for node in nodes}, "what was there before the scaling failed is kept"


@pytest.mark.takes(seconds=25)
def test_no_host_has_room_for_the_flavour(cloud_user: Connection, cloud_admin: Connection, own_run: str) -> None:
    flavor = cloud_admin.compute.create_flavor(name=TOO_LARGE, ram=1 << 20, vcpus=1, disk=1)
    try:
        cloud_admin.compute.update_quota_set(cloud_user.current_project_id, ram=-1)
        with pytest.raises(ClusterError) as error:
            make_stack(cloud_user, own_run, flavor=TOO_LARGE)
        clean(cloud_user, own_run, NullProgress())  # no quota may be less than what is used
    finally:
        cloud_admin.compute.update_quota_set(cloud_user.current_project_id, ram=12288)
        cloud_admin.compute.delete_flavor(flavor)
    assert "No valid host was found" in said(error)


@pytest.mark.takes(seconds=25)
def test_a_volume_that_no_back_end_takes(cloud_user: Connection, cloud_admin: Connection, own_run: str) -> None:
    made = cloud_admin.block_storage.create_type(name=NOWHERE, extra_specs={"volume_backend_name": "nowhere"})
    try:
        with pytest.raises(ClusterError) as error:
            make_stack(cloud_user, own_run, volume_type=NOWHERE)
        clean(cloud_user, own_run, NullProgress())
    finally:
        cloud_admin.block_storage.delete_type(made)
    assert "backend" in said(error), "Cinder's own reason, which Heat does not know"


@pytest.mark.takes(seconds=50)
def test_a_volume_that_went_into_error_while_it_was_attached(
    cloud_user: Connection, cloud_admin: Connection, own_run: str
) -> None:
    target = OpenStackTarget(parse_choice(target_text(cloud_user)))
    try:
        target.begin(own_run)
        target.apply(Configuration("A"), n_clients=1, volume_nbytes=16 * MIB)
        (volume,) = (thing.id for thing in owned(cloud_user, own_run) if thing.kind == "volume")
        cloud_admin.block_storage.reset_volume_status(volume, status="error")
        with pytest.raises(ClusterError) as error:
            target.apply(Configuration("A"), n_clients=1, volume_nbytes=16 * MIB)
        assert said(error) == "its status is error, not in-use"
        cloud_admin.block_storage.reset_volume_status(volume, status="in-use")
        target.reset()
    finally:
        target.close()


def test_an_image_that_was_deleted_since(
    cloud_user: Connection, cloud_admin: Connection, own_run: str, tmp_path: Path
) -> None:
    file = tmp_path / "image"
    file.write_bytes(bytes(1024))
    image = cloud_user.image.create_image(
        name="cephfit-tests-gone", filename=str(file), container_format="bare", disk_format="raw", use_import=False
    )
    cloud_user.image.delete_image(image.id)
    with pytest.raises(ClusterError) as error:
        make_stack(cloud_user, own_run, image=image.id)
    assert image.id in said(error)
    checked = cephfit("cloud", "check", target_text(cloud_user, image="cephfit-tests-gone"))
    assert checked.returncode == 2
    assert "has no image cephfit-tests-gone" in checked.stderr


def test_a_token_that_was_revoked_is_replaced_and_a_lost_user_is_said(
    openstack_lab: Lab, cloud_user: Connection, cloud_admin: Connection
) -> None:
    cloud = connect(str(cloud_user.config.name))
    token = cloud.session.get_token()
    revoked = cloud_admin.identity.delete("/auth/tokens", headers={"X-Subject-Token": token})
    assert revoked.status_code == 204
    assert persistently(lambda: list(cloud.identity.get("/auth/catalog").json()), where="catalogue")
    assert cloud.session.get_token() != token, "a new one was asked for, once"
    me = cloud_admin.identity.find_user(cloud.current_user_id)
    cloud_admin.identity.update_user(me, is_enabled=False)
    try:
        with pytest.raises(ClusterError, match="Keystone refuses the log-in") as error:
            persistently(lambda: list(cloud.block_storage.types()), where="volume types")
            connect(str(cloud_user.config.name))
        said(error)
    finally:
        cloud_admin.identity.update_user(me, is_enabled=True)
        cloud.close()


@pytest.fixture
def short_tokens(openstack_lab: Lab) -> Iterator[None]:
    """Tokens that Keystone gives out expire after two minutes; in the end after a day again."""
    assert openstack_lab.cloud is not None
    layout = openstack_lab.cloud.layout
    conf = layout.conf("keystone")
    usual = conf.read_text()

    def restart() -> None:
        pid = processes.from_pid_file(layout.folder / "run" / "keystone.pid", openstack_lab.folder)
        assert pid is not None
        processes.stop([pid], seconds=10)
        openstack_lab.start()

    conf.write_text(re.sub(r"(?m)^expiration = .*$", f"expiration = {TOKEN_SECONDS}", usual))
    restart()
    yield
    conf.write_text(usual)
    restart()


@pytest.mark.takes(seconds=130)
def test_a_sweep_goes_on_across_the_expiry_of_its_token(
    short_tokens: None, cloud_user: Connection, cloud_admin: Connection, tmp_path: Path
) -> None:
    cloud = connect(str(cloud_user.config.name))
    token = cloud.session.get_token()
    file, store = tmp_path / "long.yaml", str(tmp_path / "long.sqlite")
    file.write_text(LONG)
    began = time.monotonic()
    done = cephfit("sweep", "run", str(file), "--target", target_text(cloud_user), "--store", store)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began > TOKEN_SECONDS
    asked = cloud_admin.identity.get("/auth/tokens", headers={"X-Subject-Token": token})
    assert asked.status_code == 404, "a token of its beginning is none any more"
    with Store.open(store) as opened:
        (run,) = opened.runs()
        assert [sample.state for sample in opened.samples(run.run_id)] == [State.OK]
    assert persistently(lambda: list(cloud.block_storage.volumes()), where="volumes") == []
    cloud.close()


@pytest.fixture
def database(openstack_lab: Lab) -> Iterator[Callable[[], None]]:
    """Kills the database of all services; it is started again in the end."""

    def kill() -> None:
        assert openstack_lab.cloud is not None
        file = openstack_lab.cloud.layout.folder / "run" / "mariadb.pid"
        pid = processes.from_pid_file(file, openstack_lab.folder)
        assert pid is not None
        processes.kill([pid])

    yield kill
    openstack_lab.start()


@pytest.mark.takes(seconds=40)
def test_a_service_that_fails_for_a_while_is_asked_again(
    openstack_lab: Lab, cloud_user: Connection, database: Callable[[], None]
) -> None:
    """Without their database services answer 500: in the end one sentence, after a moment what was asked for."""

    def ask() -> list[Any]:
        return list(cloud_user.block_storage.volumes())

    ask()
    database()
    with pytest.raises(ClusterError) as error:
        persistently(ask, where="volumes")
    said(error)
    starter = threading.Timer(5.0, openstack_lab.start)
    starter.start()
    try:
        assert persistently(ask, where="volumes") == []
    finally:
        starter.join()


@pytest.mark.takes(seconds=35)
def test_a_service_that_is_gone_is_named(openstack_lab: Lab, cloud_user: Connection) -> None:
    assert openstack_lab.cloud is not None
    list(cloud_user.orchestration.stacks())
    file = openstack_lab.cloud.layout.folder / "run" / "heat-api.pid"
    pid = processes.from_pid_file(file, openstack_lab.folder)
    assert pid is not None
    processes.kill([pid])
    try:
        with pytest.raises(ClusterError, match="a service of the cloud does not answer") as error:
            persistently(lambda: list(cloud_user.orchestration.stacks()), where="stacks")
        assert error.value.where == "stacks"
    finally:
        openstack_lab.start()


@pytest.mark.takes(seconds=30)
def test_a_stack_that_heat_rolled_back_is_made_anew(cloud_user: Connection, own_run: str) -> None:
    """ROLLBACK_COMPLETE sounds well, and has no server."""
    name = stack_name(own_run, "hdd-1")
    template = {
        "heat_template_version": "2016-10-14",
        "resources": {
            "volume": {"type": "OS::Cinder::Volume", "properties": {"size": 1, "volume_type": "hdd"}},
            "bad": {
                "type": "OS::Nova::Server",
                "depends_on": "volume",
                "properties": {
                    "image": "cephfit-guest",
                    "flavor": "cephfit.tiny",
                    "networks": [{"network": cloud_resources.NETWORK}],
                    "availability_zone": "atlantis",
                },
            },
        },
    }
    cloud_user.orchestration.create_stack(
        name=name, template=template, tags=tag_of(own_run), is_rollback_disabled=False, timeout_mins=5
    )
    until(lambda: cloud_user.orchestration.get_stack(name, resolve_outputs=False).status == "ROLLBACK_COMPLETE")
    (node,) = make_stack(cloud_user, own_run)
    assert cloud_user.compute.get_server(node.server).status == "ACTIVE"
