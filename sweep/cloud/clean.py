"""Everything in a cloud that belongs to a run of cephfit: how it is found, and deleted in the right order."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import NotFoundException
from openstack.orchestration.v1.stack import Stack

from cephfit.errors import ClusterError
from cephfit.protocols import Progress
from cephfit.sweep.cloud import own_types
from cephfit.sweep.cloud.connection import persistently, spoken
from cephfit.sweep.cloud.ownership import NAME_PREFIX, RUN_KEY, TAG_PREFIX, has_own_name
from cephfit.sweep.cloud.stuck import free

_POLLING_SECONDS = 1.0
_STUCK_SECONDS = 60.0
"""A volume that Cinder has been detaching or deleting for so long is stuck."""


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


Owner = Callable[[Any], str | None]
"""The run that a thing belongs to, as the thing itself says."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """How things of one kind are found and deleted: by three calls of the SDK that are named after it.

    Attributes:
        name: for people; with underscores, as the SDK's calls spell it.
        service: of the SDK's connection.
        of: the run that a thing belongs to by tag or metadata; None where only its name tells.
        named: regular expression of the rest of a thing's name, after ``cephfit-RUN``.
        listing: arguments of the call that lists them.
        looking: arguments of the call that looks at one.
    """

    name: str
    service: str
    of: Owner | None
    named: str
    listing: Callable[[Connection], Mapping[str, Any]] = lambda _: {}
    looking: Mapping[str, Any] = field(default_factory=dict)

    def names(self, run_id: str) -> re.Pattern[str]:
        """What the things of a run are called."""
        return re.compile(re.escape(f"{NAME_PREFIX}-{run_id}") + self.named)

    def is_of(self, thing: Any, run_id: str) -> bool:
        """Whether a thing is a run's: by tag or metadata where it can have such, else by its name alone."""
        return self.of(thing) == run_id if self.of else bool(self.names(run_id).fullmatch(thing.name or ""))

    def find(self, cloud: Connection) -> list[Any]:
        """All of this project."""
        found = self._call(cloud, "{}s")(**self.listing(cloud))
        return [one for one in found if _is_this_projects(cloud, one)]

    def look(self, cloud: Connection, thing: str) -> str | None:
        """The status of a thing; None when it is gone."""
        try:
            found = self._call(cloud, "get_{}")(thing, **self.looking)
        except NotFoundException:
            return None
        return None if (status := _status(found)) == "DELETE_COMPLETE" else status

    def delete(self, cloud: Connection, thing: str) -> None:
        """Ask for a thing's end; the service may take its time."""
        self._call(cloud, "delete_{}")(thing)

    def _call(self, cloud: Connection, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(getattr(cloud, self.service), name.format(self.name.replace(" ", "_")))
        return call


class _VolumeTypes(_Kind):
    """The run's own volume types; Cinder refuses to delete one as long as a volume has it."""

    def find(self, cloud: Connection) -> list[Any]:
        """Of all projects, as far as this user may see whose they are."""
        return own_types.volume_types(cloud)

    def look(self, cloud: Connection, thing: str) -> str | None:
        """See _Kind."""
        try:
            cloud.block_storage.get_type(thing)
        except NotFoundException:
            return None
        return ""

    def delete(self, cloud: Connection, thing: str) -> None:
        """See _Kind."""
        cloud.block_storage.delete_type(thing)


class _QosSpecs(_Kind):
    """QoS specs of these types, which have their names; Cinder refuses to delete one as long as a type has it."""

    def is_of(self, thing: Any, run_id: str) -> bool:
        """See _Kind."""
        return has_own_name(thing.name, run_id)

    def find(self, cloud: Connection) -> list[Any]:
        """Of all projects; none for users to whom Cinder shows none."""
        return list(own_types.qos_specs(cloud))

    def look(self, cloud: Connection, thing: str) -> str | None:
        """See _Kind."""
        return own_types.look_at_spec(cloud, thing)

    def delete(self, cloud: Connection, thing: str) -> None:
        """See _Kind."""
        own_types.delete_spec(cloud, thing)


def _tagged(stack: Any) -> str | None:
    return next((t.removeprefix(TAG_PREFIX) for t in stack.tags or () if t.startswith(TAG_PREFIX)), None)


def _in_metadata(thing: Any) -> str | None:
    return (thing.metadata or {}).get(RUN_KEY)


def _is_this_projects(cloud: Connection, thing: Any) -> bool:
    """Heat shows an administrator the stacks of all projects; only their addresses say whose they are."""
    if not isinstance(thing, Stack):
        return True
    return any(f"/{cloud.current_project_id}/stacks/" in link["href"] for link in thing.links or ())


def _of_project(cloud: Connection) -> Mapping[str, Any]:
    """Neutron shows an administrator those of all projects, unless it is asked for one."""
    return {"project_id": cloud.current_project_id}


def _status(found: Any) -> str:
    return str(getattr(found, "status", "") or "")


_STACKS = _Kind("stack", "orchestration", _tagged, "-.*", looking={"resolve_outputs": False})

# What uses something comes before what it uses.
_KINDS = (
    _STACKS,
    _Kind("server", "compute", _in_metadata, r"-\d+"),
    _Kind("port", "network", None, r"-\d+", _of_project),
    _Kind("security group", "network", None, "", _of_project),
    _Kind("server group", "compute", None, ""),
    _Kind("volume", "block_storage", _in_metadata, r"-\d+"),
    _VolumeTypes("volume type", "block_storage", own_types.run_of, "-.*"),
    _QosSpecs("QoS spec", "block_storage", None, ""),
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
        _delete_all(cloud, kind, _owned_of_kind(cloud, kind, run_id), progress, kind_seconds, gone, left)
    # A stack that could not be deleted with something in it can be once that is gone.
    again = [one.thing for one in left if one.thing.kind == _STACKS.name]
    if again:
        left = [one for one in left if one.thing.kind != _STACKS.name]
        _delete_all(cloud, _STACKS, again, progress, kind_seconds, gone, left)
    return tuple(gone), tuple(left)


def _delete_all(
    cloud: Connection,
    kind: _Kind,
    things: Sequence[Thing],
    progress: Progress,
    seconds: float,
    gone: list[Thing],
    left: list[Left],
) -> None:
    """Ask for the end of all, then wait for it; each comes to ``gone`` or to ``left``."""
    asked = []
    for thing in things:
        progress.note(f"{thing.kind} {thing.name} is being deleted")
        if why := _why_not_asked(cloud, kind, thing):
            left.append(Left(thing, why))
        else:
            asked.append(thing)
    deadline = time.monotonic() + seconds
    for thing in asked:
        if why := _why_not_gone(cloud, kind, thing, deadline):
            left.append(Left(thing, why))
        else:
            gone.append(thing)


def _owned_of_kind(cloud: Connection, kind: _Kind, run_id: str) -> list[Thing]:
    return [
        Thing(kind.name, str(one.id), str(one.name or ""), _status(one), run_id)
        for one in _found(cloud, kind)
        if kind.is_of(one, run_id)
    ]


def _found(cloud: Connection, kind: _Kind) -> list[Any]:
    return persistently(kind.find, cloud, where=f"{kind.name}s")


def _why_not_asked(cloud: Connection, kind: _Kind, thing: Thing) -> str:
    try:
        return _refusal(cloud, kind, thing) and _freed_or_why(cloud, kind, thing)
    except ClusterError as error:
        return error.what


def _refusal(cloud: Connection, kind: _Kind, thing: Thing) -> str:
    """The service's words against deleting a thing; empty if it took the request, or the thing is gone."""
    try:
        with spoken(f"{thing.kind} {thing.id}"):
            try:
                kind.delete(cloud, thing.id)
            except NotFoundException:
                return ""
    except ClusterError as error:
        return error.what
    return ""


def _freed_or_why(cloud: Connection, kind: _Kind, thing: Thing) -> str:
    """Ask again for a volume's end once it is in a status in which it may end; empty if that was taken."""
    if kind.name != "volume":
        return _refusal(cloud, kind, thing)
    return free(cloud, thing.id, patience_seconds=_STUCK_SECONDS) or _refusal(cloud, kind, thing)


def _why_not_gone(cloud: Connection, kind: _Kind, thing: Thing, deadline: float) -> str:
    while True:
        try:
            status = persistently(kind.look, cloud, thing.id, where=f"{thing.kind} {thing.id}")
        except ClusterError as error:
            return error.what
        if status is None:
            return ""
        if status in ("DELETE_FAILED", "error_deleting") or time.monotonic() > deadline:
            return f"it is still there, with status {status or 'unknown'}"
        time.sleep(_POLLING_SECONDS)
