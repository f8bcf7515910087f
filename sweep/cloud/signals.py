"""Results by Heat's signals: from guests that nobody can reach, but that reach Heat.

A stack can hold a wait condition handle for each client. Who has its address and token may leave data there, under
an id; we read them as the handle's metadata. Heat takes up to 1 MiB at once unless it was set up otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openstack.connection import Connection

from cephfit.sweep.cloud.connection import json_of, persistently
from cephfit.sweep.cloud.stack_failures import resources_of

_HANDLE = "OS::Heat::WaitConditionHandle"
_SERVER = "OS::Nova::Server"


@dataclass(frozen=True, slots=True)
class Handle:
    """Where a guest leaves its results. The token is a secret of the stack: it belongs into no result and no log.

    Attributes:
        path: of the resource in Heat's API.
        endpoint: where signals go.
        token: with which they go there.
    """

    path: str
    endpoint: str
    token: str

    def __repr__(self) -> str:
        return f"Handle({self.path!r})"


def handles(cloud: Connection, stack: str) -> Mapping[str, Handle]:
    """The handle of each client of a stack, by the id of its server; empty for a stack without.

    Raises:
        ClusterError: Heat does not say.
    """
    listed = resources_of(cloud, stack)
    servers = {_stack_of(r): str(r["physical_resource_id"]) for r in listed if r["resource_type"] == _SERVER}
    made = {}
    for resource in listed:
        if resource["resource_type"] != _HANDLE or _stack_of(resource) not in servers:
            continue
        path = f"{_stack_of(resource)}/resources/{resource['resource_name']}"
        said = _asked(cloud, path, params={"with_attr": ["endpoint", "token"]}).get("resource", {})
        attributes = said.get("attributes") or {}
        if attributes.get("endpoint") and attributes.get("token"):
            handle = Handle(path, str(attributes["endpoint"]), str(attributes["token"]))
            made[servers[_stack_of(resource)]] = handle
    return made


def received(cloud: Connection, handle: Handle, key: str) -> str | None:
    """What was left under an id; None as long as nothing was.

    Raises:
        ClusterError: Heat does not say.
    """
    metadata = _asked(cloud, f"{handle.path}/metadata").get("metadata") or {}
    signal = metadata.get(key)
    return None if signal is None else str(signal.get("data") or "")


def _stack_of(resource: Mapping[str, Any]) -> str:
    """``/stacks/NAME/ID`` of the stack that a resource is in."""
    href = next(link["href"] for link in resource["links"] if link["rel"] == "stack")
    return "/stacks/" + str(href).rpartition("/stacks/")[2]


def _asked(cloud: Connection, path: str, **more: Any) -> dict[str, Any]:
    return persistently(lambda: json_of(cloud, path, service="orchestration", **more) or {}, where=path)
