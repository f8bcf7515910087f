"""The Heat templates need no newer Heat than they say: what each resource, property, function needs is known."""

import ipaddress
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from datetime import date
from importlib import resources
from typing import Any

import pytest
import yaml

from cephfit.measure.fio.fio_servers import DEFAULT_PORT

FOLDER = resources.files("cephfit.heat_templates")
NAMES = ("benchmark", "client", "verification")
OLD = "5.0.0"
"""Heat 5.0.0 is Liberty, the first whose versions count like this; as old or older counts as that version."""
NEEDS: Mapping[str, Mapping[str, str]] = {
    "OS::Nova::Server": {
        **dict.fromkeys(("name", "image", "flavor", "key_name", "availability_zone", "scheduler_hints"), OLD),
        **dict.fromkeys(("config_drive", "metadata", "user_data", "user_data_format", "networks"), OLD),
        "networks.port": OLD,
        "networks.allocate_network": "9.0.0",
    },
    "OS::Nova::ServerGroup": {"name": OLD, "policies": OLD},
    "OS::Cinder::Volume": dict.fromkeys(("name", "size", "volume_type", "metadata"), OLD),
    "OS::Cinder::VolumeAttachment": {"instance_uuid": OLD, "volume_id": OLD},
    "OS::Neutron::Port": dict.fromkeys(("name", "network", "security_groups"), OLD),
    "OS::Neutron::SecurityGroup": {
        **dict.fromkeys(("name", "description", "rules"), OLD),
        **{
            f"rules.{key}": OLD
            for key in ("protocol", "ethertype", "port_range_min", "port_range_max", "remote_ip_prefix")
        },
    },
    "OS::Heat::WaitCondition": dict.fromkeys(("handle", "count", "timeout"), OLD),
    "OS::Heat::WaitConditionHandle": {},
    "OS::Heat::ResourceGroup": dict.fromkeys(("count", "resource_def"), OLD),
    "OS::Heat::Value": {"type": "7.0.0", "value": "7.0.0"},
}
"""The least Heat of each property that the templates may use, as Heat's own schemas say it."""
FUNCTIONS = {
    **dict.fromkeys(("get_param", "get_attr", "get_resource", "get_file", "list_join", "str_replace"), date.min),
    **dict.fromkeys(("if", "not", "equals", "and", "or"), date(2016, 10, 14)),
    "contains": date(2017, 9, 1),
}
"""Which heat_template_version has each function that the templates may call (Heat's template guide)."""
VERSIONS = {"8.0.0": date(2017, 2, 24), "9.0.0": date(2017, 9, 1), "10.0.0": date(2018, 3, 2)}
"""The newest heat_template_version of releases of Heat (its template guide)."""
ASK_HEAT = """
import importlib, json
from heat.engine.clients.os import neutron
found = {}
for name in ("nova.server", "nova.server_group", "cinder.volume", "neutron.port", "neutron.security_group",
             "heat.wait_condition", "heat.wait_condition_handle", "heat.resource_group", "heat.value"):
    module = importlib.import_module("heat.engine.resources.openstack." + name)
    for kind, resource in module.resource_mapping().items():
        of_all = found[kind] = {}
        for key, prop in resource.properties_schema.items():
            of_all[key] = prop.support_status.version
            inner = prop.schema["*"].schema if prop.schema and "*" in prop.schema else prop.schema
            for below, one in (inner or {}).items():
                of_all[key + "." + below] = one.support_status.version
        found[kind][""] = resource.support_status.version
print(json.dumps(found))
"""


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.fixture(scope="module")
def least() -> str:
    """The oldest Heat that the folder's description names."""
    found = re.search(r"Heat from the release \w+\s+\((\d+\.0\.0)", (FOLDER / "README.md").read_text())
    assert found is not None
    return found[1]


def template(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return document


def used(name: str) -> Iterator[tuple[str, str]]:
    """Types of resources and their properties, also of those in lists."""
    for resource in template(name)["resources"].values():
        if resource["type"] == "client.yaml":
            continue
        yield resource["type"], ""
        for key, value in resource.get("properties", {}).items():
            yield resource["type"], key
            branches = value["if"][1:] if isinstance(value, dict) and "if" in value else [value]
            for one in (one for branch in branches if isinstance(branch, list) for one in branch):
                if isinstance(one, dict):
                    yield from ((resource["type"], f"{key}.{below}") for below in one if below not in FUNCTIONS)


def functions(value: Any, *, is_literal: bool = False) -> Iterator[str]:
    """Names of mappings of one word, which Heat takes for calls."""
    if isinstance(value, list):
        for one in value:
            yield from functions(one)
    elif isinstance(value, dict):
        if len(value) == 1 and not is_literal:
            yield next(iter(value))
        for key, one in value.items():
            yield from functions(one, is_literal=key in ("properties", "metadata", "scheduler_hints", "params"))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_newer_than_the_heat_that_is_asked_for(name: str, least: str) -> None:
    for kind, key in used(name):
        assert kind in NEEDS, kind
        assert not key or numbers(NEEDS[kind][key]) <= numbers(least), f"{kind} {key}"
    assert template(name)["heat_template_version"] <= VERSIONS[least]


def test_the_heat_that_is_asked_for_is_not_newer_than_needed(least: str) -> None:
    newest = max((NEEDS[kind][key] for name in NAMES for kind, key in used(name) if key), key=numbers)
    assert newest == least


@pytest.mark.parametrize("name", NAMES)
def test_functions_are_of_the_version_that_is_named(name: str) -> None:
    document = template(name)
    called = {
        word for part in ("resources", "outputs") for one in document[part].values() for word in functions(one)
    }
    called |= {word for condition in document["conditions"].values() for word in functions(condition)}
    known = {"port", "allocate_network", "properties", "value"}  # of one word, and no calls
    for word in called - known:
        assert FUNCTIONS[word] <= document["heat_template_version"], word


@pytest.mark.openstack
@pytest.mark.core
def test_what_each_property_needs_is_as_the_installed_heat_says() -> None:
    asked = subprocess.run(
        ["/usr/bin/python3", "-c", ASK_HEAT], capture_output=True, text=True, cwd="/", env={}, check=False
    )
    if asked.returncode:
        pytest.skip(f"no Heat can be imported here: {asked.stderr.strip().splitlines()[-1]}")
    said = json.loads(asked.stdout)
    for kind, properties in NEEDS.items():
        of_kind = said[kind].pop("") or OLD
        for key, version in properties.items():
            found = said[kind][key] or of_kind
            found = (
                found if not found.startswith("201") else OLD
            )  # releases before Liberty are called by their year
            assert max((found, of_kind if not of_kind.startswith("201") else OLD), key=numbers) == version, key


@pytest.mark.parametrize("name", ["benchmark", "verification"])
def test_nobody_is_let_in_to_guests_unless_somebody_is_named(name: str) -> None:
    """fio's server has no authentication; and no host on a network has an address of the loopback."""
    said = template(name)["parameters"]["reached_from"]
    assert ipaddress.ip_network(said["default"]).is_loopback
    assert "The default 127.0.0.1/32 admits no address of a network" in " ".join(said["description"].split())
    assert "0.0.0.0/0 admits every address" in " ".join(said["description"].split())


@pytest.mark.parametrize("name", ["benchmark", "verification"])
def test_the_commands_of_the_folders_description_say_all_that_has_to_be_said(name: str) -> None:
    text = (FOLDER / "README.md").read_text().replace("\\\n", " ")
    (command,) = re.findall(rf"openstack stack create -t heat/{name}\.yaml .*", text)
    given = set(re.findall(r"--parameter (\w+)=", command))
    parameters = template(name)["parameters"]
    assert given <= parameters.keys()
    assert {key for key, said in parameters.items() if "default" not in said} <= given
    if name == "benchmark":
        assert "reached_from" in given, "without it no machine could drive fio"


def test_fio_listens_in_guests_where_it_is_looked_for() -> None:
    parameters = yaml.safe_load((FOLDER / "benchmark.yaml").read_text())["parameters"]
    assert parameters["fio_port"]["default"] == DEFAULT_PORT
