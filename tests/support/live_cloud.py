"""What tests on the lab's real OpenStack share: targets, stacks made without checks, what a project has."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openstack.connection import Connection

from cephfit.cloud.guests import guests
from cephfit.cloud.ownership import stack_name
from cephfit.cloud.stacks import Node, Stacks
from cephfit.cloud.volumes import volume_types
from cephfit.core.errors import StoreError
from cephfit.core.protocols import NullProgress
from cephfit.lab.cluster import Lab
from cephfit.lab.openstack import cloud_resources
from cephfit.results.store.sample_store import Store

MARKS = [pytest.mark.root, pytest.mark.ceph, pytest.mark.fio, pytest.mark.openstack, pytest.mark.slow]
"""What every one of these tests needs; each module adds how long it may take."""


def target_text(cloud: Connection, **more: str) -> str:
    """A target with the lab's smallest guests; what is said to be empty is left out."""
    words = {
        "flavor": "cephfit.tiny",
        "network": cloud_resources.NETWORK,
        "volume_type": "hdd",
        "overcommit": "yes",
    }
    said = ",".join(f"{key}={value}" for key, value in {**words, **more}.items() if value)
    return f"openstack:{cloud.config.name},{said}"


def cephfit(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command that people run, to its end."""
    argv = [sys.executable, "-m", "cephfit.cli.main", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, env={**os.environ}, check=False)


def started(*arguments: str) -> "subprocess.Popen[str]":
    """The command that people run, under way."""
    argv = [sys.executable, "-m", "cephfit.cli.main", *arguments]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})


def n_samples(store: Path) -> int:
    """Samples in a store that may not be there yet."""
    if not store.exists():
        return 0
    try:
        with Store.open(str(store)) as opened:
            return sum(1 for run in opened.runs() for _ in opened.samples(run.run_id))
    except StoreError:
        return 0  # it is just being made


def make_stack(cloud: Connection, run_id: str, **more: Any) -> tuple[Node, ...]:
    """A stack of benchmark clients without the checks that a target makes: what fails, fails in the cloud."""
    parameters = {
        "count": 1,
        "image": "cephfit-guest",
        "flavor": "cephfit.tiny",
        "network": cloud_resources.NETWORK,
        "volume_type": "hdd",
        "volume_size": 1,
        "user_data": guests.user_data(port=8765),
    }
    stacks = Stacks(cloud, run_id, NullProgress(), timeout_seconds=600)
    return stacks.ensure(stack_name(run_id, "hdd-1"), "benchmark", {**parameters, **more})


def everything(cloud: Connection) -> dict[str, set[str]]:
    """Ids of all that this project has, and of what it sees of images, volume types and QoS specs."""
    project = cloud.current_project_id
    return {
        "stacks": {s.id for s in cloud.orchestration.stacks() if f"/{project}/" in s.links[0]["href"]},
        "servers": {s.id for s in cloud.compute.servers()},
        "volumes": {v.id for v in cloud.block_storage.volumes()},
        "ports": {p.id for p in cloud.network.ports(project_id=project)},
        "groups": {g.id for g in cloud.network.security_groups(project_id=project)},
        "server groups": {g.id for g in cloud.compute.server_groups()},
        "images": {i.id for i in cloud.image.images()},
        "volume types": {t.id for t in volume_types.volume_types(cloud)},
        "QoS specs": {spec.id for spec in volume_types.qos_specs(cloud)},
    }


def set_volume_status(lab: Lab, volume_id: str, status: str) -> None:
    """Set a status that a killed Cinder leaves in its database; its API refuses some of them."""
    assert lab.cloud is not None
    pid = (lab.cloud.layout.folder / "run" / "namespace.pid").read_text().strip()
    argv = ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "mariadb", "-S", "/run/mariadb.sock", "-u", "root", "cinder"]
    query = f"UPDATE volumes SET status = '{status}' WHERE id = '{volume_id}'"
    subprocess.run([*argv, "-e", query], check=True)


def until(what: Callable[[], Any], *, seconds: float = 120.0) -> Any:
    """What a call gives as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(0.5)
    return found
