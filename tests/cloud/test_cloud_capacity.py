"""Capacity, addresses and projects on the lab's real OpenStack: what is refused, and who gets in."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from live_cloud import MARKS, cephfit, everything, target_text, until
from openstack.connection import Connection

from cephfit.cloud.cloud_choice import parse_choice, state_folder
from cephfit.cloud.guests.guest_transport import source_towards
from cephfit.cloud.stacks import template_path
from cephfit.core.journal import Journal
from cephfit.lab.cluster import Lab
from cephfit.lab.openstack import cloud_resources

pytestmark = [*MARKS, pytest.mark.timeout(900)]

LARGE = """
schema_version: 1
name: large
configurations:
  capped: {volume: {qos: {total_iops_sec: 60}}}
measurement: {sizes: [4K], patterns: [randread], clients: 1, volume_size: 40G, repeats: 1, ramp_seconds: 0.5,
  run_seconds: 6, cache: warm, seed: 1}
"""
"""More than all of the lab's OSDs have."""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    file = tmp_path / "large.yaml"
    file.write_text(LARGE)
    return file


def test_what_does_not_fit_into_the_pools_is_refused_before_anything_is_made(
    openstack_lab: Lab, cloud_admin: Connection, large: Path, tmp_path: Path
) -> None:
    before = everything(cloud_admin)
    target = target_text(cloud_admin, lab=str(openstack_lab.folder), overcommit="no")
    planned = cephfit("sweep", "plan", str(large), "--target", target, "--json")
    assert planned.returncode == 0, planned.stderr
    on_the_cluster = json.loads(planned.stdout)["on_the_cluster"]
    assert ["capped", "volumes", "qos.total_iops_sec", "", "60"] in [
        list(difference.values()) for difference in on_the_cluster["differences"]
    ]
    notes = "\n".join(on_the_cluster["notes"])
    assert re.search(
        r"a private volume type cephfit-RUN-hdd-qos-.* \(total_iops_sec = 60\) are created for capped", notes
    )
    assert re.search(r"2 volumes of type hdd need 88G .* Ceph pool volumes-hdd has .* free: .*would refuse", notes)

    run = cephfit("sweep", "run", str(large), "--target", target, "--store", str(tmp_path / "large.sqlite"))
    assert run.returncode == 2
    assert re.search(r"too little capacity: 2 volumes of type hdd need 88G .* Ceph pool volumes-hdd", run.stderr)
    assert everything(cloud_admin) == before


@pytest.fixture
def restored(openstack_lab: Lab, cloud_user: Connection) -> Iterator[str]:
    """A target of which nothing is left in the end."""
    before = everything(cloud_user)
    target = target_text(cloud_user, lab=str(openstack_lab.folder), overcommit="no")
    yield target
    undone = cephfit("restore", "--target", target)
    assert undone.returncode == 0, undone.stderr
    until(lambda: everything(cloud_user) == before)


@pytest.mark.takes(seconds=60)
def test_where_cinder_tells_no_room_the_cluster_does_before_volumes_are_filled(
    cloud_user: Connection, restored: str, large: Path, tmp_path: Path
) -> None:
    """And the guests that are there meanwhile are reached from this machine, and from nowhere else."""
    run = cephfit("sweep", "run", str(large), "--target", restored, "--store", str(tmp_path / "large.sqlite"))
    assert run.returncode == 2
    assert "whether the volumes fit is not known before they are created" in run.stderr
    assert re.search(r"pool volumes-hdd: the volumes need 44G, the pool has .* free", run.stderr)
    groups = cloud_user.network.security_groups(project_id=cloud_user.current_project_id)
    rules = [rule for group in groups if group.name.startswith("cephfit-") for rule in group.security_group_rules]
    (port,) = cloud_user.network.ports(project_id=cloud_user.current_project_id)
    source = source_towards(port.fixed_ips[0]["ip_address"])
    assert source is not None
    ingress = [rule for rule in rules if rule["direction"] == "ingress"]
    assert {(rule["ethertype"], rule["remote_ip_prefix"]) for rule in ingress} == {("IPv4", f"{source}/32")}
    assert f"guests are reached from {source}/32 only" in run.stderr


def test_what_another_project_has_is_not_taken_for_gone(cloud_user: Connection) -> None:
    choice = parse_choice(target_text(cloud_user))
    folder = state_folder(choice)
    folder.mkdir(parents=True, exist_ok=True)
    elsewhere = {"run": "r", "project": "0" * 32, "auth_url": "https://elsewhere.example:5000/v3"}
    journal = Journal(folder / "journal.jsonl")
    journal.note("stack", "cephfit-r-hdd-1", elsewhere)
    try:
        for command in (["restore"], ["sweep", "run", "openstack-quick"]):
            refused = cephfit(*command, "--target", target_text(cloud_user))
            assert refused.returncode == 2
            assert "was created in project 000" in refused.stderr
            assert "cephfit cloud clean r --cloud NAME" in refused.stderr
    finally:
        journal.forget("stack", "cephfit-r-hdd-1")
        journal.finish()
    assert cephfit("restore", "--target", target_text(cloud_user)).returncode == 0


@pytest.mark.parametrize(
    ("cidr", "family"), [("192.0.2.0/24", "IPv4"), ("2001:db8::/64", "IPv6"), ("0.0.0.0/0", "IPv4")]
)
@pytest.mark.parametrize("template", ["benchmark", "verification"])
def test_rules_are_of_the_family_of_the_addresses(
    cloud_user: Connection, template: str, cidr: str, family: str
) -> None:
    """What Heat would make of the template, by its own preview."""
    heat = cloud_user.orchestration
    files = heat.read_env_and_templates(template_file=str(template_path(template)))
    parameters = {"run_id": "preview", "volume_type": "hdd", "flavor": "cephfit.tiny", "image": "cephfit-guest"}
    parameters |= {"network": cloud_resources.NETWORK, "reached_from": cidr}
    body = {
        "stack_name": "preview",
        "template": files["template"],
        "files": files["files"],
        "parameters": parameters,
    }
    previewed = heat.post("/stacks/preview", json=body).json()["stack"]["resources"]
    (reach,) = (one for one in previewed if isinstance(one, dict) and one.get("resource_name") == "reach")
    assert {rule["ethertype"] for rule in reach["properties"]["rules"]} == {family}
