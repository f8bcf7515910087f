"""Everything in a cloud that belongs to a run of cephfit: how it is found, and deleted in the right order."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import NotFoundException

from cephfit.errors import ClusterError
from cephfit.protocols import Progress
from cephfit.sweep.cloud.connection import persistently, spoken
from cephfit.sweep.cloud.ownership import NAME_PREFIX, RUN_KEY, TAG_PREFIX, stack_name

_POLLING_SECONDS = 1.0
_SETTLED = ("available", "in-use", "error", "error_deleting", "error_extending", "error_restoring")
"""Statuses of a volume that Cinder itself does not leave; any other passes, or the volume is stuck."""


@dataclass(frozen=True, slots=True)
class Thing:
    """Something in a cloud that a run owns.

    Attributes:
        kind: ``stack``, ``server``, ``volume`` ...
        id: of the service.
        name: for people.
        status: as its service says; empty where it has none.
        run_id: whose it is; empty where it does not say (a name alone does not tell where the run's id ends).
    """

    kind: str
    id: str
    name: str
    status: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Left:
    """What could not be deleted, and why."""

    thing: Thing
    why: str


@dataclass(frozen=True, slots=True)
class _Kind:
    """How things of one kind are found and deleted.

    Attributes:
        name: for people.
        find: all of this project whose owner is told by a tag or metadata, or all that have a name like ours.
        of: the run that a thing belongs to by tag or metadata; None where only its name tells.
        names: what the things of a run are called, where only the name tells.
        delete: asks for it; a service may take its time.
        look: status of a thing; raises NotFoundException when it is gone.
    """

    name: str
    find: Callable[[Connection], Iterable[Any]]
    of: Callable[[Any], str | None] | None
    names: Callable[[str], re.Pattern[str]]
    delete: Callable[[Connection, str], Any]
    look: Callable[[Connection, str], str]


def _tagged(stack: Any) -> str | None:
    return next((t.removeprefix(TAG_PREFIX) for t in stack.tags or () if t.startswith(TAG_PREFIX)), None)


def _is_this_projects(cloud: Connection, stack: Any) -> bool:
    """Heat shows an administrator the stacks of all projects; only their addresses say whose they are."""
    return any(f"/{cloud.current_project_id}/stacks/" in link["href"] for link in stack.links or ())


def _in_metadata(thing: Any) -> str | None:
    return (thing.metadata or {}).get(RUN_KEY)


def _one_name(run_id: str) -> re.Pattern[str]:
    return re.compile(re.escape(f"{NAME_PREFIX}-{run_id}"))


def _numbered_name(run_id: str) -> re.Pattern[str]:
    return re.compile(re.escape(f"{NAME_PREFIX}-{run_id}") + r"-\d+")


def _status(found: Any) -> str:
    return str(getattr(found, "status", "") or "")


def _stack_status(cloud: Connection, stack: str) -> str:
    found = cloud.orchestration.get_stack(stack, resolve_outputs=False)
    if found.status == "DELETE_COMPLETE":
        raise NotFoundException
    return _status(found)


# What uses something comes before what it uses.
_KINDS = (
    _Kind(
        "stack",
        lambda cloud: [stack for stack in cloud.orchestration.stacks() if _is_this_projects(cloud, stack)],
        _tagged,
        lambda run_id: re.compile(re.escape(stack_name(run_id, "")) + ".*"),
        lambda cloud, stack: cloud.orchestration.delete_stack(stack),
        _stack_status,
    ),
    _Kind(
        "server",
        lambda cloud: cloud.compute.servers(),
        _in_metadata,
        _numbered_name,
        lambda cloud, server: cloud.compute.delete_server(server),
        lambda cloud, server: _status(cloud.compute.get_server(server)),
    ),
    _Kind(
        "port",
        lambda cloud: cloud.network.ports(project_id=cloud.current_project_id),
        None,
        _numbered_name,
        lambda cloud, port: cloud.network.delete_port(port),
        lambda cloud, port: _status(cloud.network.get_port(port)),
    ),
    _Kind(
        "security group",
        lambda cloud: cloud.network.security_groups(project_id=cloud.current_project_id),
        None,
        _one_name,
        lambda cloud, group: cloud.network.delete_security_group(group),
        lambda cloud, group: _status(cloud.network.get_security_group(group)),
    ),
    _Kind(
        "server group",
        lambda cloud: cloud.compute.server_groups(),
        None,
        _one_name,
        lambda cloud, group: cloud.compute.delete_server_group(group),
        lambda cloud, group: _status(cloud.compute.get_server_group(group)),
    ),
    _Kind(
        "volume",
        lambda cloud: cloud.block_storage.volumes(),
        _in_metadata,
        _numbered_name,
        lambda cloud, volume: cloud.block_storage.delete_volume(volume),
        lambda cloud, volume: _status(cloud.block_storage.get_volume(volume)),
    ),
)


def owned(cloud: Connection, run_id: str) -> tuple[Thing, ...]:
    """What this project has of a run, in the order in which it can be deleted."""
    return tuple(thing for kind in _KINDS for thing in _owned_of_kind(cloud, kind, run_id))


def runs(cloud: Connection) -> Mapping[str, tuple[Thing, ...]]:
    """Everything of cephfit in this project, by run."""
    ids = dict.fromkeys(
        run_id
        for kind in _KINDS
        if (of := kind.of) is not None
        for found in _found(cloud, kind)
        if (run_id := of(found))
    )
    return {run_id: owned(cloud, run_id) for run_id in ids}


def clean(
    cloud: Connection, run_id: str, progress: Progress, *, kind_seconds: float = 600.0
) -> tuple[tuple[Thing, ...], tuple[Left, ...]]:
    """Delete everything of a run that this project has. Safe to call again, and after a kill.

    Args:
        cloud: connection.
        run_id: whose things.
        progress: hears what is being deleted.
        kind_seconds: how long the things of one kind may take to be gone.

    Returns:
        What was deleted, and what could not be.
    """
    gone: list[Thing] = []
    left: list[Left] = []
    for kind in _KINDS:
        things = _owned_of_kind(cloud, kind, run_id)
        asked = []
        for thing in things:
            progress.note(f"{thing.kind} {thing.name} is being deleted")
            if why := _why_not_asked(cloud, kind, thing):
                left.append(Left(thing, why))
            else:
                asked.append(thing)
        deadline = time.monotonic() + kind_seconds
        for thing in asked:
            if why := _why_not_gone(cloud, kind, thing, deadline):
                left.append(Left(thing, why))
            else:
                gone.append(thing)
    return tuple(gone), tuple(left)


def _owned_of_kind(cloud: Connection, kind: _Kind, run_id: str) -> list[Thing]:
    """A tag or metadata is the proof where there can be one; a name alone is one only where nothing else is."""
    names = kind.names(run_id)
    found = []
    for one in _found(cloud, kind):
        is_ours = kind.of(one) == run_id if kind.of is not None else bool(names.fullmatch(one.name or ""))
        if is_ours:
            found.append(Thing(kind.name, str(one.id), str(one.name or ""), _status(one), run_id))
    return found


def _found(cloud: Connection, kind: _Kind) -> Iterator[Any]:
    yield from persistently(lambda: list(kind.find(cloud)), where=f"{kind.name}s")


def _why_not_asked(cloud: Connection, kind: _Kind, thing: Thing) -> str:
    where = f"{thing.kind} {thing.id}"
    try:
        with spoken(where):
            try:
                kind.delete(cloud, thing.id)
            except NotFoundException:
                return ""
    except ClusterError as error:
        return error.what + _how_to_help(thing)
    return ""


def _why_not_gone(cloud: Connection, kind: _Kind, thing: Thing, deadline: float) -> str:
    while True:
        try:
            status = persistently(lambda: _looked(cloud, kind, thing), where=f"{thing.kind} {thing.id}")
        except ClusterError as error:
            return error.what
        if status is None:
            return ""
        if status in ("DELETE_FAILED", "error_deleting") or time.monotonic() > deadline:
            return f"it is still there, with status {status or 'unknown'}" + _how_to_help(thing)
        time.sleep(_POLLING_SECONDS)


def _looked(cloud: Connection, kind: _Kind, thing: Thing) -> str | None:
    try:
        return kind.look(cloud, thing.id)
    except NotFoundException:
        return None


def _how_to_help(thing: Thing) -> str:
    if thing.kind != "volume" or thing.status in _SETTLED[:1]:
        return ""
    return f"; an administrator can free it: openstack volume set --state error --detached {thing.id}"
