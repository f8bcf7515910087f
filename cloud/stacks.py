"""Heat stacks of benchmark clients: created, scaled, examined when they fail, deleted.

Why Heat could not make a stack: the words of the service whose resource failed, not Heat's around them.

Stacks of benchmark clients: made, scaled, looked into when they fail, deleted.
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

from cephfit.cloud.cleanup.ownership import tag_of
from cephfit.cloud.cloud_connection import json_of, made_once, persistently
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


LARGEST_STACK = 100
"""Guests in one stack, as its template says: each is seven of the 1000 resources that Heat allows a stack."""

_POLLING_SECONDS = 1.0
_NAME_SECONDS = 60.0
_UPDATING = "UPDATE_IN_PROGRESS"
_UNSCALED = "UPDATE_FAILED"
"""The clients from before are still there, with their volumes."""
_DELETING = "DELETE_IN_PROGRESS"
_UNDELETED = "DELETE_FAILED"
_GONE = ("ROLLBACK_COMPLETE", "DELETE_COMPLETE")
"""Statuses of which the name sounds well, and there is nothing to work with."""


@dataclass(frozen=True, slots=True)
class Node:
    """One client of a stack.

    Attributes:
        name: ``c0``, ``c1`` ...
        server: id.
        volume: id.
        address: where it is reached; empty without a network.
    """

    name: str
    server: str
    volume: str
    address: str


class Stacks:
    """The stacks of one run.

    Args:
        cloud: connection.
        run_id: they carry it.
        progress: hears what takes long.
        timeout_seconds: how long a stack may take.
    """

    def __init__(
        self, cloud: Connection, run_id: str, progress: Progress, *, timeout_seconds: float = 1800.0
    ) -> None:
        self._cloud = cloud
        self._run_id = run_id
        self._progress = progress
        self._timeout_seconds = timeout_seconds

    def ensure(self, name: str, template: str, parameters: Mapping[str, Any]) -> tuple[Node, ...]:
        """A stack with these parameters: made, scaled to another count, or left as it is.

        A stack that a killed process left half made is waited for, and used if it became whole. One that failed,
        or that Heat rolled back, is deleted and made anew once; one that could not be scaled is scaled again.

        Args:
            name: of the stack.
            template: ``benchmark`` or ``verification``.
            parameters: of the template, without the run's id.

        Raises:
            ClusterError: Heat could not make it; with the reason of the resource that failed.
        """
        wanted = {**parameters, "run_id": self._run_id}
        status = self._settled_status(name)
        if status and status != _UNSCALED and not _is_whole(status):
            self._progress.note(f"stack {name} is {status}: it is deleted and created again")
            self.delete(name)
            status = ""
        if not status:
            self._progress.note(f"stack {name} is being made: {parameters['count']} servers")
            self._change(name, template, wanted, make=True)
        elif status == _UNSCALED or not self._has(name, wanted):
            self._progress.note(f"stack {name} is being scaled to {parameters['count']} servers")
            self._change(name, template, wanted, make=False)
        return self.nodes(name)

    def count(self, name: str) -> int:
        """How many clients of a stack are there; 0 if there is no such stack, or it will be made anew."""
        status = self._status(name)
        if status == _UNSCALED:
            kinds = [r["resource_type"] for r in resources_of(self._cloud, name) if is_complete(r)]
            return kinds.count("OS::Nova::Server")
        is_coming = status.endswith("IN_PROGRESS") and not status.startswith(("DELETE", "ROLLBACK"))
        return int(self._parameters(name).get("count", 0)) if is_coming or _is_whole(status) else 0

    def nodes(self, name: str) -> tuple[Node, ...]:
        """The clients of a stack.

        Raises:
            ClusterError: its outputs are not of the same clients.
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
        """Have Heat begin to delete a stack, also one that it still makes; `delete` waits for the end of it."""
        if self._status(name) not in ("", _DELETING):
            persistently(lambda: self._cloud.orchestration.delete_stack(name), where=f"stack {name}")

    def delete(self, name: str) -> None:
        """Delete a stack, also one that is still being made, and wait until it is gone; none is no error.

        Raises:
            ClusterError: Heat cannot delete it; says why.
        """
        status = self._status(name)
        if status == _DELETING:
            status = self._status_after_deletion(name)
        if not status:
            return
        self.ask_deletion(name)
        if status := self._status_after_deletion(name):
            reasons = "; ".join(failures(self._cloud, name)) or "no resource says why"
            raise ClusterError(
                f"it could not be deleted ({status}): {reasons}",
                where=f"stack {name}",
                remedy=f"`cephfit cloud clean {self._run_id}` deletes what is left piece by piece",
            )
        # Heat says that it is deleted a moment before it takes it off its list and gives the name free.
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
            "tags": tag_of(self._run_id),  # to Heat a text: tags with commas between them
        }
        if make:
            self._create(name, attributes)
        else:
            self._update(name, attributes)
        status = self._settled_status(name)
        if not _is_whole(status):
            reasons = "; ".join(failures(self._cloud, name)) or "no resource says why"
            raise ClusterError(
                f"Heat could not create it ({status or 'it is gone'}): {reasons}",
                where=f"stack {name}",
                remedy="fix that, then run the same command again: it creates the stack again",
            )

    def _create(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Heat keeps the name of a deleted stack for a moment longer than it shows the stack."""
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
        """An update that is asked for twice cancels itself: Heat then says that both failed."""

        def under_way() -> Any:
            stack = self._stack(name)
            is_done = stack is not None and _is_whole(stack.status) and self._has(name, attributes["parameters"])
            return stack if is_done or (stack is not None and stack.status == _UPDATING) else None

        made_once(
            lambda: self._cloud.orchestration.update_stack(name, **attributes), under_way, where=f"stack {name}"
        )

    def _settled_status(self, name: str) -> str:
        """The status once nothing is under way, such as ``CREATE_COMPLETE``; empty if there is no such stack."""
        deadline = time.monotonic() + self._timeout_seconds
        while (status := self._status(name)).endswith("IN_PROGRESS"):
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"still {status} after {self._timeout_seconds:.0f} s",
                    where=f"stack {name}",
                    remedy="see why (`openstack stack resource list`), then run the same command again",
                )
            time.sleep(_POLLING_SECONDS)
        return status

    def _status_after_deletion(self, name: str) -> str:
        """The status once Heat's deletion has ended: empty when the stack is gone.

        What Heat was busy with before may show for a moment more.
        """
        deadline = time.monotonic() + self._timeout_seconds
        while (status := self._status(name)) not in ("", _UNDELETED) and time.monotonic() < deadline:
            time.sleep(_POLLING_SECONDS)
        return status

    def _status(self, name: str) -> str:
        stack = self._stack(name)
        return str(stack.status) if stack is not None else ""

    def _stack(self, name: str) -> Any:
        """A stack of the run; None if there is none of this name.

        Raises:
            ClusterError: there is one, but it is not the run's.
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
                f"somebody else's stack has this name: it has no tag {tag_of(self._run_id)}",
                where=f"stack {name}",
                remedy="nothing was done with it; see whose it is (`openstack stack show`), and begin a new run",
            )
        return stack

    def _has(self, name: str, wanted: Mapping[str, Any]) -> bool:
        now = self._parameters(name)
        return all(now.get(key) == str(value) for key, value in wanted.items())

    def _parameters(self, name: str) -> dict[str, str]:
        told = (stack.parameters or {}) if (stack := self._stack(name)) is not None else {}
        return {key: str(value) for key, value in told.items() if not key.startswith("OS::")}


def _is_whole(status: str) -> bool:
    """Whether a stack is there as it was asked for."""
    return status.endswith("COMPLETE") and status not in _GONE


def template_path(name: str) -> Path:
    """A template of the folder ``heat``, as it lies in the package."""
    return Path(str(resources.files("cephfit.heat_templates").joinpath(f"{name}.yaml")))
