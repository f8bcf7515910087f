"""The target openstack on the lab's real OpenStack, by the command that people run."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from openstack.connection import Connection

from cephfit.configuration import Configuration
from cephfit.lab.cluster import Lab
from cephfit.lab.openstack import resources
from cephfit.lab.openstack.registration import connect
from cephfit.results.store import Store
from cephfit.sample import State
from cephfit.silence import Silence
from cephfit.sweep.cloud.choice import parse_choice
from cephfit.sweep.cloud.clean import clean, owned
from cephfit.sweep.targets.openstack import OpenStackTarget
from cephfit.units import MIB

pytestmark = [
    pytest.mark.root,
    pytest.mark.ceph,
    pytest.mark.fio,
    pytest.mark.openstack,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
]

SWEEP = """
schema_version: 1
name: two-types
configurations:
  ssd: {volume: {type: ssd}}
measurement:
  sizes: [4K]
  patterns: [randread, randwrite]
  clients: 2
  volume_size: 32M
  repeats: 1
  ramp_seconds: 0.5
  run_seconds: 6
  max_attempts: 5
  cache: warm
  seed: 7
"""


@pytest.fixture
def admin(openstack_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """The lab's administrator, who may ask for server diagnostics."""
    assert openstack_lab.cloud is not None
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(openstack_lab.cloud.layout.clouds_yaml))
    cloud = connect(openstack_lab.cloud.layout)
    yield cloud
    cloud.close()


@pytest.fixture
def user(openstack_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """An ordinary user of another project."""
    assert openstack_lab.cloud is not None
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(openstack_lab.cloud.layout.clouds_yaml))
    cloud = connect(openstack_lab.cloud.layout, openstack_lab.cloud.layout.user_cloud)
    yield cloud
    cloud.close()


def target_text(cloud: Connection, **more: str) -> str:
    words = {"flavor": "cephfit.tiny", "network": resources.NETWORK, "volume_type": "hdd", "overcommit": "yes"}
    said = ",".join(f"{key}={value}" for key, value in {**words, **more}.items())
    return f"openstack:{cloud.config.name},{said}"


def cephfit(*arguments: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-m", "cephfit.cli.main", *arguments]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})


def n_samples(store: Path) -> int:
    if not store.exists():
        return 0
    with Store.open(str(store)) as opened:
        return sum(1 for run in opened.runs() for _ in opened.samples(run.run_id))


def everything(cloud: Connection) -> dict[str, set[str]]:
    """Ids of all that this project has."""
    project = cloud.current_project_id
    return {
        "stacks": {s.id for s in cloud.orchestration.stacks() if f"/{project}/" in s.links[0]["href"]},
        "servers": {s.id for s in cloud.compute.servers()},
        "volumes": {v.id for v in cloud.block_storage.volumes()},
        "ports": {p.id for p in cloud.network.ports(project_id=project)},
        "groups": {g.id for g in cloud.network.security_groups(project_id=project)},
        "server groups": {g.id for g in cloud.compute.server_groups()},
    }


def test_two_volume_types_are_measured_and_a_killed_sweep_goes_on(admin: Connection, tmp_path: Path) -> None:
    before = everything(admin)
    file, store = tmp_path / "types.yaml", tmp_path / "types.sqlite"
    file.write_text(SWEEP)
    command = ("sweep", "run", str(file), "--target", target_text(admin), "--store", str(store))
    first = cephfit(*command)
    while n_samples(store) == 0:
        assert first.poll() is None, first.communicate()
        time.sleep(1)
    first.kill()
    first.communicate()
    done = n_samples(store)

    second = cephfit(*command)
    _, said = second.communicate()
    assert second.returncode == 0, said
    assert "going on with run" in said
    assert "filling" not in said.split("stack ")[0], "the volumes of the first configuration were filled already"

    with Store.open(str(store)) as opened:
        (run,) = opened.runs()
        samples = list(opened.samples(run.run_id))
    assert len(samples) > done
    good = [sample for sample in samples if sample.state is State.OK]
    assert {(s.key.configuration, str(s.key.cell), s.key.client) for s in good} == {
        (c, cell, client)
        for c in ("A", "ssd")
        for cell in ("4K-randread", "4K-randwrite")
        for client in ("c0", "c1")
    }
    for sample in good:
        assert sample.metrics is not None
        count = sample.evidence["independent_count"]
        assert "hypervisor" in count["source"]
        moved = sample.metrics.nbytes_per_s * sample.metrics.runtime_ns / 1e9
        assert count["total_nbytes"] >= 0.99 * moved
    assert everything(admin) == before, "the run's things are gone, and nothing else is"


def test_a_stack_is_scaled_and_keeps_its_servers(user: Connection) -> None:
    before = everything(user)
    target = OpenStackTarget(parse_choice(target_text(user)))
    try:
        target.begin("scaled")
        servers: list[set[str]] = []
        for n_clients in (1, 2):
            applied = target.apply(Configuration("A"), n_clients=n_clients, volume_nbytes=32 * MIB)
            assert applied.ok, applied.mismatches
            assert len(target.clients()) == n_clients
            assert target.health().ok
            servers.append({thing.id for thing in owned(user, "scaled") if thing.kind == "server"})
        assert servers[0] < servers[1]
    finally:
        target.reset()
        target.close()
    assert everything(user) == before


def test_clean_deletes_a_runs_things_and_nothing_that_only_looks_like_them(user: Connection) -> None:
    mine: list[Callable[[], Any]] = []
    other = user.block_storage.create_volume(size=1, name="cephfit-lost-0", volume_type="hdd")
    mine.append(lambda: user.block_storage.delete_volume(other))
    group = user.network.create_security_group(name="cephfit-lost-and-found")
    mine.append(lambda: user.network.delete_security_group(group))
    later = user.block_storage.create_volume(
        size=1, name="cephfit-lost-2-0", volume_type="hdd", metadata={"cephfit_run": "lost-2"}
    )
    mine.append(lambda: user.block_storage.delete_volume(later))
    try:
        before = everything(user)
        target = OpenStackTarget(parse_choice(target_text(user)))
        target.begin("lost")
        target.apply(Configuration("A"), n_clients=1, volume_nbytes=32 * MIB)
        target.close()  # as after a kill: nobody resets it
        user.block_storage.create_volume(
            size=1, name="stray", volume_type="ssd", metadata={"cephfit_run": "lost"}
        )  # what a stack lost sight of

        kinds = {thing.kind for thing in owned(user, "lost")}
        assert kinds == {"stack", "server", "port", "security group", "server group", "volume"}
        listing = cephfit("cloud", "list", "--cloud", str(user.config.name), "--json")
        assert set(json.loads(listing.communicate()[0])) == {"lost", "lost-2"}

        gone, left = clean(user, "lost", Silence())
        assert not left
        assert {thing.kind for thing in gone} >= {"stack", "volume"}
        assert everything(user) == before
        assert owned(user, "lost") == ()
    finally:
        for delete in mine:
            delete()
        for volume in (other, later):
            user.block_storage.wait_for_delete(volume, wait=120)
    restored = cephfit("restore", "--target", f"openstack:{user.config.name}")
    assert restored.communicate() is not None and restored.returncode == 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"image": "cephfit-gest"}, "has no image cephfit-gest.*did you mean 'cephfit-guest'"),
        ({"flavor": "cephfit.tny"}, "has no flavour cephfit.tny.*did you mean 'cephfit.tiny'"),
        ({"network": "labb"}, "has no network labb.*did you mean 'lab'"),
        ({"volume_type": "sdd"}, "has no volume type sdd.*did you mean 'ssd'"),
    ],
)
def test_what_the_cloud_lacks_is_said_before_anything_is_made(
    user: Connection, tmp_path: Path, wrong: dict[str, str], words: str
) -> None:
    before = everything(user)
    file = tmp_path / "types.yaml"
    file.write_text(SWEEP.replace("  ssd: {volume: {type: ssd}}\n", "  A: {}\n"))
    store = str(tmp_path / "types.sqlite")
    run = cephfit("sweep", "run", str(file), "--target", target_text(user, **wrong), "--store", store)
    _, said = run.communicate()
    assert run.returncode == 2
    assert re.search(words, said, re.DOTALL), said
    assert "Traceback" not in said
    assert everything(user) == before


def test_a_quota_that_is_too_small_is_said_with_all_its_numbers(user: Connection) -> None:
    check = cephfit("cloud", "check", target_text(user), "--clients", "25", "--volume-size", "5G")
    _, said = check.communicate()
    assert check.returncode == 2
    assert re.search(r"25 more instances are needed, \d+ of 24 are used", said)
    assert re.search(r"125 more GiB of volumes are needed, \d+ of 96 are used", said)
