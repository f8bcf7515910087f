"""The Heat templates as people use them by hand: with OpenStack's own client, on the lab's Heat."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("openstack", reason="needs the extra openstack")

from live_cloud import MARKS, cephfit, everything, until
from openstack.connection import Connection

from cephfit.cloud.stacks import template_path
from cephfit.lab.openstack import cloud_resources

pytestmark = [*MARKS, pytest.mark.timeout(900)]

CLIENT = "/usr/bin/openstack"
PARAMETERS = {
    "image": "cephfit-guest",
    "flavor": "cephfit.tiny",
    "network": cloud_resources.NETWORK,
    "volume_type": "hdd",
    "count": "2",
}
MORE = {
    "benchmark": {"fio_port": "8765", "reached_from": "192.0.2.7/32"},
    "verification": {"steps": "", "count": "1"},
}
"""As heat/README.md has it: whoever drives fio gives an address; for results alone all ports stay closed."""


@pytest.fixture
def client(cloud_user: Connection) -> str:
    """Debian's python-openstackclient with python-heatclient's commands, which the lab's packages bring."""
    found = subprocess.run([CLIENT, "stack", "create", "--help"], capture_output=True, check=False)
    if shutil.which(CLIENT) is None or found.returncode:
        pytest.skip("needs OpenStack's command line with Heat's part")
    return str(cloud_user.config.name)


def openstack(cloud: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "OS_CLOUD": cloud}
    return subprocess.run([CLIENT, *arguments], capture_output=True, text=True, env=environ, check=False)


@pytest.mark.takes(seconds=80)
@pytest.mark.parametrize("name", ["benchmark", pytest.param("verification", marks=pytest.mark.cloud_whole)])
def test_a_stack_made_by_hand_is_whole_scales_and_goes(
    cloud_user: Connection, client: str, name: str, tmp_path: Path
) -> None:
    before, run = everything(cloud_user), f"by-hand-{name}"
    parameters = {**PARAMETERS, **MORE[name], "run_id": run}
    words = [word for key, value in parameters.items() for word in ("--parameter", f"{key}={value}")]
    made = openstack(
        client,
        "stack",
        "create",
        "-t",
        str(template_path(name)),
        *words,
        "--tags",
        f"cephfit-run={run}",
        "--wait",
        run,
    )
    assert "CREATE_COMPLETE" in made.stdout, made.stdout + made.stderr
    shown: dict[str, Any] = {}
    for output in ("servers", "volumes", "addresses"):
        asked = openstack(client, "stack", "output", "show", run, output, "-f", "json")
        assert asked.returncode == 0, asked.stderr
        value = json.loads(asked.stdout)["output_value"]
        shown[output] = json.loads(value) if isinstance(value, str) else value
    assert {len(found) for found in shown.values()} == {int(parameters["count"])}
    assert all(cloud_user.compute.get_server(server).status == "ACTIVE" for server in shown["servers"])
    if name == "benchmark":
        cleaned = cephfit("cloud", "clean", run, "--cloud", client)
        assert cleaned.returncode == 0, cleaned.stderr
    else:
        gone = openstack(client, "stack", "delete", "--yes", "--wait", run)
        assert gone.returncode == 0, gone.stderr
    until(lambda: everything(cloud_user) == before)


@pytest.mark.parametrize("name", ["benchmark", "client", "verification"])
def test_heat_takes_each_template_for_valid(cloud_user: Connection, name: str) -> None:
    heat = cloud_user.orchestration
    files = heat.read_env_and_templates(template_file=str(template_path(name)))
    # What is a part of others has conditions on parameters that have no default.
    whole = template_path(name).read_text()
    given = {"number": 1, "boolean": False}
    wanted = yaml.safe_load(whole)["parameters"] if name == "client" else {}
    parameters = {key: given.get(parameter["type"], "") for key, parameter in wanted.items()}
    body = {"template": files["template"], "files": files.get("files", {}), "parameters": parameters}
    answer = heat.post("/validate", json=body)
    assert answer.status_code == 200, answer.text
    assert all(parameter["Description"] for parameter in answer.json()["Parameters"].values())
