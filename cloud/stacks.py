"""Heat stacks of benchmark clients: creation, scaling, failure reasons and deletion.

The reason of a failure is the message of the service whose resource failed, without Heat's additions.
"""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import ConflictException, NotFoundException

from cephfit.cloud.cloud_connection import json_of, made_once, persistently
from cephfit.cloud.ownership import tag_of
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Progress

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
"""A class of Heat's errors, or the place of a resource in a stack."""
_REQUEST = re.compile(r"\s*\((?:HTTP \d+|Request-ID: [^)]*)\)")
_NESTED = 3
"""Stack, group of clients, client."""
_MESSAGES = "3.3"
"""The first version of Cinder's API that gives users the reason of a failure."""


def failures(cloud: Connection, name: str) -> tuple[str, ...]:
    """Return why resources of a stack failed: the innermost reason of each, once.

    Raises:
        ClusterError: Heat does not answer.
    """
    return tuple(dict.fromkeys(_failing(cloud, name)))


def innermost(reason: str) -> str:
    """Return the service's message at the end of Heat's chain of ``Class: resources.place: message``."""
    words = [word for word in reason.split(": ") if " " in word or not _OF_HEAT.fullmatch(word)]
    return _REQUEST.sub("", ": ".join(words)).strip() or reason


def resources_of(cloud: Connection, name: str) -> list[Mapping[str, Any]]:
    """Return all resources of a stack as Heat lists them, also those of nested stacks."""

    def ask() -> list[Mapping[str, Any]]:
        stack = cloud.orchestration.get_stack(name, resolve_outputs=False)
        # The SDK's own call does not send nested_depth.
        path, nested = f"/stacks/{stack.name}/{stack.id}/resources", {"nested_depth": _NESTED}
        return list((json_of(cloud, path, service="orchestration", params=nested) or {}).get("resources", []))

    return persistently(ask, where=f"stack {name}")


def is_complete(resource: Mapping[str, Any]) -> bool:
    """Return whether a resource exists as requested."""
    return str(resource["resource_status"]) in ("CREATE_COMPLETE", "UPDATE_COMPLETE")


def _failing(cloud: Connection, name: str) -> Iterator[str]:
    for resource in resources_of(cloud, name):
        kind = str(resource["resource_type"])
        # Groups and clients only repeat the reasons of their resources.
        if str(resource["resource_status"]).endswith("FAILED") and kind in _OWN_REASON:
            reason = innermost(str(resource["resource_status_reason"]))
            volume = resource.get("physical_resource_id") if kind == _VOLUME else None
            # Heat reports only the volume's status ``error``.
            words = volume_failure(cloud, str(volume)) if volume else ""
            yield f"{kind} {resource['resource_name']}: {reason}{f' (Cinder: {words})' if words else ''}"


def volume_failure(cloud: Connection, volume: str) -> str:
    """Return Cinder's messages to users about a volume's failure; empty where there are none."""

    def ask() -> list[Mapping[str, Any]]:
        found = json_of(cloud, "/messages", params={"resource_uuid": volume}, microversion=_MESSAGES)
        return list((found or {}).get("messages", []))

    try:
        found = persistently(ask, where=f"volume {volume}")
    except ClusterError:
        return ""  # an older Cinder has no messages, and the failure is known without them
    return "; ".join(dict.fromkeys(str(message["user_message"]) for message in found))


LARGEST_STACK = 100
"""Largest number of guests in one stack: each needs seven of the 1000 resources that Heat allows a stack."""

_POLLING_SECONDS = 1.0
_NAME_SECONDS = 60.0
_UPDATING = "UPDATE_IN_PROGRESS"
_UNSCALED = "UPDATE_FAILED"
"""The earlier clients still exist, with their volumes."""
_DELETING = "DELETE_IN_PROGRESS"
_UNDELETED = "DELETE_FAILED"
_GONE = ("ROLLBACK_COMPLETE", "DELETE_COMPLETE")
"""Statuses that end with COMPLETE, but leave no resources."""


@dataclass(frozen=True, slots=True)
class Node:
    """One client of a stack.

    Attributes:
        name: ``c0``, ``c1`` ...
        server: id.
        volume: id.
        address: of the guest; empty without a network.
    """

    name: str
    server: str
    volume: str
    address: str


class Stacks:
    """The stacks of one run.

    Args:
        cloud: connection.
        run_id: noted in each stack.
        progress: receives notes on steps that take long.
        timeout_seconds: limit for a change of a stack.
    """

    def __init__(
        self, cloud: Connection, run_id: str, progress: Progress, *, timeout_seconds: float = 1800.0
    ) -> None:
        self._cloud = cloud
        self._run_id = run_id
        self._progress = progress
        self._timeout_seconds = timeout_seconds

    def ensure(self, name: str, template: str, parameters: Mapping[str, Any]) -> tuple[Node, ...]:
        """Ensure that a stack with these parameters exists: create it, scale it, or keep it.

        A stack that a killed process began is waited for, and used if it becomes complete. A stack that failed, or
        that Heat rolled back, is deleted and created again once. One that could not be scaled is scaled again.

        Args:
            name: of the stack.
            template: ``benchmark`` or ``verification``.
            parameters: of the template, without the run's id.

        Returns:
            The clients of the stack.

        Raises:
            ClusterError: Heat could not create it; with the reason of the resource that failed.
        """
        wanted = {**parameters, "run_id": self._run_id}
        status = self._settled_status(name)
        if status and status != _UNSCALED and not _is_whole(status):
            self._progress.note(f"stack {name} is {status}: it is deleted and created again")
            self.delete(name)
            status = ""
        if not status:
            self._progress.note(f"stack {name} is being created: {parameters['count']} servers")
            self._change(name, template, wanted, make=True)
        elif status == _UNSCALED or not self._has(name, wanted):
            self._progress.note(f"stack {name} is being scaled to {parameters['count']} servers")
            self._change(name, template, wanted, make=False)
        return self.nodes(name)

    def count(self, name: str) -> int:
        """Return the number of clients in a stack; 0 if there is no stack, or it will be created again."""
        status = self._status(name)
        if status == _UNSCALED:
            kinds = [r["resource_type"] for r in resources_of(self._cloud, name) if is_complete(r)]
            return kinds.count("OS::Nova::Server")
        is_coming = status.endswith("IN_PROGRESS") and not status.startswith(("DELETE", "ROLLBACK"))
        return int(self._parameters(name).get("count", 0)) if is_coming or _is_whole(status) else 0

    def nodes(self, name: str) -> tuple[Node, ...]:
        """Return the clients of a stack.

        Raises:
            ClusterError: its outputs do not belong to the same clients.
        """
        stack = persistently(lambda: self._cloud.orchestration.get_stack(name), where=f"stack {name}")
        outputs = {output["output_key"]: output["output_value"] for output in stack.outputs or ()}
        parts = (outputs.get("servers", ()), outputs.get("volumes", ()), outputs.get("addresses", ()))
        if len({len(part) for part in parts}) != 1:
            raise ClusterError("its outputs do not belong together", where=f"stack {name}")
        return tuple(
            Node(f"c{number}", server, volume, address or "")
            for number, (server, volume, address) in enumerate(zip(*parts, strict=True))
        )

    def ask_deletion(self, name: str) -> None:
        """Start the deletion of a stack, also of one under creation; `delete` waits for its end."""
        if self._status(name) not in ("", _DELETING):
            persistently(lambda: self._cloud.orchestration.delete_stack(name), where=f"stack {name}")

    def delete(self, name: str) -> None:
        """Delete a stack, also one under creation, and wait until it is gone. A missing stack is no error.

        Raises:
            ClusterError: Heat cannot delete it; with the reason.
        """
        status = self._status(name)
        if status == _DELETING:
            status = self._status_after_deletion(name)
        if not status:
            return
        self.ask_deletion(name)
        if status := self._status_after_deletion(name):
            reasons = "; ".join(failures(self._cloud, name)) or "no resource has a reason"
            raise ClusterError(
                f"the stack could not be deleted ({status}): {reasons}",
                where=f"stack {name}",
                remedy=f"`cephfit cloud clean {self._run_id}` deletes the remaining resources one by one",
            )
        # Heat reports the deletion a moment before it removes the stack from its list and frees the name.
        deadline = time.monotonic() + _NAME_SECONDS
        while self._is_listed(name) and time.monotonic() < deadline:
            time.sleep(_POLLING_SECONDS)

    def _is_listed(self, name: str) -> bool:
        found = persistently(lambda: list(self._cloud.orchestration.stacks(name=name)), where=f"stack {name}")
        return any(stack.name == name for stack in found)

    def _change(self, name: str, template: str, parameters: Mapping[str, Any], *, make: bool) -> None:
        files = persistently(
            lambda: self._cloud.orchestration.read_env_and_templates(template_file=str(template_path(template))),
            where=f"stack {name}",
        )
        attributes: dict[str, Any] = {
            **files,
            "parameters": dict(parameters),
            "timeout_mins": int(self._timeout_seconds // 60),
            "is_rollback_disabled": True,
            "tags": tag_of(self._run_id),  # a text for Heat: tags separated by commas
        }
        if make:
            self._create(name, attributes)
        else:
            self._update(name, attributes)
        status = self._settled_status(name)
        if not _is_whole(status):
            reasons = "; ".join(failures(self._cloud, name)) or "no resource has a reason"
            raise ClusterError(
                f"Heat could not create it ({status or 'it is gone'}): {reasons}",
                where=f"stack {name}",
                remedy="fix that, then run the same command again: it creates the stack again",
            )

    def _create(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Create a stack; retry while Heat still reserves the name of a deleted stack."""
        deadline = time.monotonic() + _NAME_SECONDS

        def make() -> Any:
            while True:
                try:
                    return self._cloud.orchestration.create_stack(name=name, **attributes)
                except ConflictException:
                    if self._stack(name) is not None or time.monotonic() > deadline:
                        raise
                    time.sleep(_POLLING_SECONDS)

        made_once(make, lambda: self._stack(name), where=f"stack {name}")

    def _update(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Update a stack, but never twice: a second request makes both updates fail in Heat."""

        def under_way() -> Any:
            stack = self._stack(name)
            is_done = stack is not None and _is_whole(stack.status) and self._has(name, attributes["parameters"])
            return stack if is_done or (stack is not None and stack.status == _UPDATING) else None

        made_once(
            lambda: self._cloud.orchestration.update_stack(name, **attributes), under_way, where=f"stack {name}"
        )

    def _settled_status(self, name: str) -> str:
        """Wait for the end of a change; return the status, such as ``CREATE_COMPLETE``; empty if there is none."""
        deadline = time.monotonic() + self._timeout_seconds
        while (status := self._status(name)).endswith("IN_PROGRESS"):
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"still {status} after {self._timeout_seconds:.0f} s",
                    where=f"stack {name}",
                    remedy="find out why (`openstack stack resource list`), then run the same command again",
                )
            time.sleep(_POLLING_SECONDS)
        return status

    def _status_after_deletion(self, name: str) -> str:
        """Wait for the end of a deletion; return the status, empty when the stack is gone.

        An earlier status may remain visible for a moment.
        """
        deadline = time.monotonic() + self._timeout_seconds
        while (status := self._status(name)) not in ("", _UNDELETED) and time.monotonic() < deadline:
            time.sleep(_POLLING_SECONDS)
        return status

    def _status(self, name: str) -> str:
        stack = self._stack(name)
        return str(stack.status) if stack is not None else ""

    def _stack(self, name: str) -> Any:
        """Return a stack of the run; None if there is none of this name.

        Raises:
            ClusterError: a stack of this name exists, but does not belong to the run.
        """

        def ask() -> Any:
            try:
                found = self._cloud.orchestration.get_stack(name, resolve_outputs=False)
            except NotFoundException:
                return None
            return None if found.status == "DELETE_COMPLETE" else found

        stack = persistently(ask, where=f"stack {name}")
        if stack is not None and tag_of(self._run_id) not in (stack.tags or ()):
            raise ClusterError(
                f"another stack has this name: it has no tag {tag_of(self._run_id)}",
                where=f"stack {name}",
                remedy="it was not changed; find its owner (`openstack stack show`), and begin a new run",
            )
        return stack

    def _has(self, name: str, wanted: Mapping[str, Any]) -> bool:
        now = self._parameters(name)
        return all(now.get(key) == str(value) for key, value in wanted.items())

    def _parameters(self, name: str) -> dict[str, str]:
        parameters = (stack.parameters or {}) if (stack := self._stack(name)) is not None else {}
        return {key: str(value) for key, value in parameters.items() if not key.startswith("OS::")}


def _is_whole(status: str) -> bool:
    """Return whether a stack exists as requested."""
    return status.endswith("COMPLETE") and status not in _GONE


def template_path(name: str) -> Path:
    """A template of the folder ``heat``, as it lies in the package."""
    return Path(str(resources.files("cephfit.heat_templates").joinpath(f"{name}.yaml")))
