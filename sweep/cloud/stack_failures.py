"""Why Heat could not make a stack: the words of the service whose resource failed, not Heat's around them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from openstack.connection import Connection

from cephfit.errors import ClusterError
from cephfit.sweep.cloud.connection import json_of, persistently

_OWN_REASON = (
    "OS::Nova::Server",
    "OS::Nova::ServerGroup",
    "OS::Cinder::Volume",
    "OS::Cinder::VolumeAttachment",
    "OS::Neutron::Port",
    "OS::Neutron::SecurityGroup",
    "OS::Heat::WaitCondition",
)
_VOLUME = "OS::Cinder::Volume"
_OF_HEAT = re.compile(r"[A-Z]\w+|resources\S*")
"""A class of Heat's errors, or where in a stack the resource is."""
_REQUEST = re.compile(r"\s*\((?:HTTP \d+|Request-ID: [^)]*)\)")
_NESTED = 3
"""Stack, group of clients, client."""
_MESSAGES = "3.3"
"""The first version of Cinder's API that tells users why something of theirs failed."""


def failures(cloud: Connection, name: str) -> tuple[str, ...]:
    """Why resources of a stack failed: the innermost reason of each, once.

    Raises:
        ClusterError: Heat does not say.
    """
    return tuple(dict.fromkeys(_failing(cloud, name)))


def innermost(reason: str) -> str:
    """The service's own words at the end of Heat's chain of ``Class: resources.place: words``."""
    words = [word for word in reason.split(": ") if " " in word or not _OF_HEAT.fullmatch(word)]
    return _REQUEST.sub("", ": ".join(words)).strip() or reason


def resources_of(cloud: Connection, name: str) -> list[Mapping[str, Any]]:
    """All resources of a stack as Heat lists them, also those in the stacks within it."""

    def ask() -> list[Mapping[str, Any]]:
        stack = cloud.orchestration.get_stack(name, resolve_outputs=False)
        # The SDK's own call does not send nested_depth.
        path, nested = f"/stacks/{stack.name}/{stack.id}/resources", {"nested_depth": _NESTED}
        return list((json_of(cloud, path, service="orchestration", params=nested) or {}).get("resources", []))

    return persistently(ask, where=f"stack {name}")


def is_complete(resource: Mapping[str, Any]) -> bool:
    """Whether a resource is there as it was asked for."""
    return str(resource["resource_status"]) in ("CREATE_COMPLETE", "UPDATE_COMPLETE")


def _failing(cloud: Connection, name: str) -> Iterator[str]:
    for resource in resources_of(cloud, name):
        kind = str(resource["resource_type"])
        # Groups and clients only repeat what the resources in them say.
        if str(resource["resource_status"]).endswith("FAILED") and kind in _OWN_REASON:
            said = innermost(str(resource["resource_status_reason"]))
            volume = resource.get("physical_resource_id") if kind == _VOLUME else None
            # Heat only knows that a volume went to the status ``error``.
            words = said_of_volume(cloud, str(volume)) if volume else ""
            yield f"{kind} {resource['resource_name']}: {said}{f' (Cinder: {words})' if words else ''}"


def said_of_volume(cloud: Connection, volume: str) -> str:
    """What Cinder tells users of what went wrong with a volume; empty where it says nothing."""

    def ask() -> list[Mapping[str, Any]]:
        found = json_of(cloud, "/messages", params={"resource_uuid": volume}, microversion=_MESSAGES)
        return list((found or {}).get("messages", []))

    try:
        found = persistently(ask, where=f"volume {volume}")
    except ClusterError:
        return ""  # an older Cinder has none, and what failed is known without
    return "; ".join(dict.fromkeys(str(message["user_message"]) for message in found))
