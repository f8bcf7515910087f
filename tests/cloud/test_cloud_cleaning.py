"""Cleanup by ownership on the lab's OpenStack: incomplete stacks, stuck volumes, and resources of other users."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from live_cloud import MARKS, cephfit, everything, make_stack, set_volume_status, target_text, until
from openstack.connection import Connection

from cephfit.cloud import cloud_cleanup
from cephfit.cloud.cloud_cleanup import clean
from cephfit.cloud.owned_resources import owned, runs
from cephfit.cloud.ownership import RUN_KEY
from cephfit.core.protocols import NullProgress
from cephfit.lab.cluster import Lab

pytestmark = [*MARKS, pytest.mark.timeout(900)]

CUT_OFF = """
schema_version: 1
name: cut-off
configurations: {A: {}}
measurement: {sizes: [4K], patterns: [read], clients: 2, volume_size: 16M, repeats: 1, run_seconds: 2, cache: warm,
  seed: 1}
"""


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """No service works on the volumes that are stuck here, so there is nothing to wait for."""
    monkeypatch.setattr(cloud_cleanup, "_STUCK_SECONDS", 5.0)
    monkeypatch.setattr(cloud_cleanup, "_STUCK_DELETING_SECONDS", 5.0)


def stuck_volume(user: Connection, lab: Lab, run_id: str, status: str) -> str:
    """The id of a volume of a run that is stuck in a transient status."""
    made = user.block_storage.create_volume(
        size=1, name=f"cephfit-{run_id}-0", volume_type="hdd", metadata={RUN_KEY: run_id}
    )
    user.block_storage.wait_for_status(made, "available", wait=120)
    set_volume_status(lab, made.id, status)
    return str(made.id)


@pytest.mark.takes(seconds=25)
def test_a_stack_cut_off_while_it_is_made_is_found_by_its_tag(cloud_user: Connection, tmp_path: Path) -> None:
    """kill -9 during CREATE: Heat goes on by itself, and `cloud clean` needs no journal."""
    before = everything(cloud_user)
    file = tmp_path / "cut.yaml"
    file.write_text(CUT_OFF)
    argv = [sys.executable, "-m", "cephfit.cli.main", "sweep", "run", str(file)]
    argv += ["--target", target_text(cloud_user), "--store", str(tmp_path / "cut.sqlite")]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL, env={**os.environ}) as sweep:
        until(lambda: [s for s in cloud_user.orchestration.stacks() if s.status == "CREATE_IN_PROGRESS"])
        sweep.send_signal(signal.SIGKILL)
    (run_id,) = (run_id for run_id in runs(cloud_user) if run_id.startswith("cut-off"))
    cleaned = cephfit("cloud", "clean", run_id, "--cloud", str(cloud_user.config.name))
    assert cleaned.returncode == 0, cleaned.stderr
    until(lambda: everything(cloud_user) == before)  # Heat lists a stack for a moment after it is gone
    assert cephfit("restore", "--target", f"openstack:{cloud_user.config.name}").returncode == 0


@pytest.mark.parametrize("status", ["deleting", "error_deleting", "in-use", "attaching"])
def test_a_stuck_volume_is_listed_with_the_command_that_frees_it(
    openstack_lab: Lab, cloud_user: Connection, cloud_admin: Connection, own_run: str, status: str
) -> None:
    """An ordinary user may not reset the status."""
    volume = stuck_volume(cloud_user, openstack_lab, own_run, status)
    gone, left = clean(cloud_user, own_run, NullProgress())
    assert gone == ()
    assert [one.resource.id for one in left] == [volume]
    assert left[0].why.startswith(f"it stays {status}, and only an administrator can free it")
    assert left[0].why.endswith(f"openstack volume set --state error --detached {volume}")
    cloud_admin.block_storage.reset_volume_status(volume, status="error", attach_status="detached")
    gone, left = clean(cloud_user, own_run, NullProgress())
    assert ([thing.id for thing in gone], left) == ([volume], ())


@pytest.mark.parametrize("status", ["deleting", "error_deleting", "in-use"])
def test_an_administrator_frees_a_stuck_volume_of_the_run_alone(
    openstack_lab: Lab, cloud_admin: Connection, status: str
) -> None:
    run_id = "stuck"
    volume = stuck_volume(cloud_admin, openstack_lab, run_id, status)
    other = stuck_volume(cloud_admin, openstack_lab, f"{run_id}-2", status)
    try:
        gone, left = clean(cloud_admin, run_id, NullProgress())
        assert ([thing.id for thing in gone], left) == ([volume], ())
        assert cloud_admin.block_storage.get_volume(other).status == status
    finally:
        set_volume_status(openstack_lab, other, "available")
        gone, left = clean(cloud_admin, f"{run_id}-2", NullProgress())
    assert ([thing.id for thing in gone], left) == ([other], ())


@pytest.mark.takes(seconds=30)
def test_a_volume_that_somebodys_server_has_stays_and_is_listed(
    cloud_user: Connection, cloud_admin: Connection, own_run: str
) -> None:
    """A person attached a volume of the run to a server of their own: it is theirs to detach."""
    (node,) = make_stack(cloud_user, f"{own_run}x", network="")
    made = cloud_user.block_storage.create_volume(
        size=1, name=f"cephfit-{own_run}-0", volume_type="hdd", metadata={RUN_KEY: own_run}
    )
    cloud_user.block_storage.wait_for_status(made, "available", wait=120)
    cloud_user.compute.create_volume_attachment(node.server, volume=made.id)
    cloud_user.block_storage.wait_for_status(cloud_user.block_storage.get_volume(made.id), "in-use", wait=120)
    try:
        cleaned = cephfit("cloud", "clean", own_run, "--cloud", str(cloud_user.config.name))
        assert cleaned.returncode == 2
        assert f"it is attached to server {node.server}" in cleaned.stderr
        assert cloud_user.block_storage.get_volume(made.id).status == "in-use"
        assert owned(cloud_user, f"{own_run}x"), "the server of the other run is untouched"
    finally:
        clean(cloud_user, f"{own_run}x", NullProgress())
