"""What a run owns in a cloud: the kinds of things, how each is found and looked at, in the order of deletion."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import NotFoundException
from openstack.orchestration.v1.stack import Stack

from cephfit.cloud.cleanup.ownership import NAME_PREFIX, RUN_KEY, TAG_PREFIX, has_own_name
from cephfit.cloud.cloud_connection import persistently
from cephfit.cloud.stacks import failures, said_of_volume
from cephfit.cloud.volumes import created_types

_DESCRIPTION = "cephfit run "
"""With which the description of a run's security group begins, followed by the run's id."""
_MADE_RUN_ID = r".+-\d{8}T\d{6}-[0-9a-f]{4}|trace-.+-[0-9a-f]{8}"
"""What ids of runs look like that cephfit makes. Of what has no other sign of its run than a name, only such
names tell of one: anybody may call a server group cephfit-mine."""


@dataclass(frozen=True, slots=True)
class Thing:
    """Something in a cloud that a run owns.

    Attributes:
        kind: ``stack``, ``server``, ``volume`` ...
        id: of the service.
        name: for people.
        status: as its service says; empty where it has none.
        run_id: whose it is.
    """

    kind: str
    id: str
    name: str
    status: str
    run_id: str


Owner = Callable[[Any], str | None]
"""The run that a thing belongs to, as the thing itself says."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How things of one kind are found and deleted: by three calls of the SDK that are named after it.

    Attributes:
        name: for people; with underscores, as the SDK's calls spell it.
        service: of the SDK's connection.
        of: the run that a thing belongs to by tag, metadata or description; None where only its name tells.
        named: regular expression of the rest of a thing's name, after ``cephfit-RUN``.
        listing: arguments of the call that lists them.
        looking: arguments of the call that looks at one.
        reason: what a service says of why a thing is as it is; empty where it says nothing.
    """

    name: str
    service: str
    of: Owner | None
    named: str
    listing: Callable[[Connection], Mapping[str, Any]] = lambda _: {}
    looking: Mapping[str, Any] = field(default_factory=dict)
    reason: Callable[[Connection, str], str] = lambda _cloud, _thing: ""

    def names(self, run_id: str) -> re.Pattern[str]:
        """What the things of a run are called."""
        return re.compile(re.escape(f"{NAME_PREFIX}-{run_id}") + self.named)

    def is_of(self, thing: Any, run_id: str) -> bool:
        """Whether a thing is a run's: by tag or metadata where it can have such, else by its name alone."""
        return self.of(thing) == run_id if self.of else bool(self.names(run_id).fullmatch(thing.name or ""))

    def run_of(self, thing: Any) -> str | None:
        """The run that a thing belongs to, where it says so itself, or by a name that nobody else gives."""
        if self.of:
            return self.of(thing)
        found = re.fullmatch(f"{NAME_PREFIX}-({_MADE_RUN_ID}){self.named}", thing.name or "")
        return found[1] if found else None

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


class _VolumeTypes(Kind):
    """The run's own volume types; Cinder refuses to delete one as long as a volume has it."""

    def find(self, cloud: Connection) -> list[Any]:
        """Of all projects, as far as this user may see whose they are."""
        return created_types.volume_types(cloud)

    def look(self, cloud: Connection, thing: str) -> str | None:
        """See Kind."""
        try:
            cloud.block_storage.get_type(thing)
        except NotFoundException:
            return None
        return ""

    def delete(self, cloud: Connection, thing: str) -> None:
        """See Kind."""
        cloud.block_storage.delete_type(thing)


class _QosSpecs(Kind):
    """QoS specs of these types, which have their names; Cinder refuses to delete one as long as a type has it."""

    def is_of(self, thing: Any, run_id: str) -> bool:
        """See Kind."""
        return has_own_name(thing.name, run_id)

    def run_of(self, thing: Any) -> str | None:
        """See Kind: the sign at the end of its name says where in it the run's id ends."""
        ends = (dash.start() for dash in re.finditer("-", thing.name))
        ids = (thing.name[len(NAME_PREFIX) + 1 : end] for end in ends if end > len(NAME_PREFIX))
        return next((run_id for run_id in ids if has_own_name(thing.name, run_id)), None)

    def find(self, cloud: Connection) -> list[Any]:
        """Of all projects; none for users to whom Cinder shows none."""
        return list(created_types.qos_specs(cloud))

    def look(self, cloud: Connection, thing: str) -> str | None:
        """See Kind."""
        return created_types.look_at_spec(cloud, thing)

    def delete(self, cloud: Connection, thing: str) -> None:
        """See Kind."""
        created_types.delete_spec(cloud, thing)


def _tagged(stack: Any) -> str | None:
    return next((t.removeprefix(TAG_PREFIX) for t in stack.tags or () if t.startswith(TAG_PREFIX)), None)


def _in_metadata(thing: Any) -> str | None:
    return (thing.metadata or {}).get(RUN_KEY)


def _described(group: Any) -> str | None:
    description = str(group.description or "")
    return description.removeprefix(_DESCRIPTION) if description.startswith(_DESCRIPTION) else None


def _is_this_projects(cloud: Connection, thing: Any) -> bool:
    """Heat shows an administrator the stacks of all projects; only their addresses say whose they are."""
    if not isinstance(thing, Stack):
        return True
    return any(f"/{cloud.current_project_id}/stacks/" in link["href"] for link in thing.links or ())


def _of_project(cloud: Connection) -> Mapping[str, Any]:
    """Neutron shows an administrator those of all projects, unless it is asked for one."""
    return {"project_id": cloud.current_project_id}


def _failed_in_stack(cloud: Connection, stack: str) -> str:
    return "; ".join(failures(cloud, stack))


def _fault_of_server(cloud: Connection, server: str) -> str:
    return str((cloud.compute.get_server(server).fault or {}).get("message") or "")


def _status(found: Any) -> str:
    return str(getattr(found, "status", "") or "")


STACKS = Kind(
    "stack", "orchestration", _tagged, "-.*", looking={"resolve_outputs": False}, reason=_failed_in_stack
)

# What uses something comes before what it uses.
KINDS = (
    STACKS,
    Kind("server", "compute", _in_metadata, r"-\d+", reason=_fault_of_server),
    Kind("port", "network", None, r"-\d+", _of_project),
    Kind("security group", "network", _described, "", _of_project),
    Kind("server group", "compute", None, ""),
    Kind("volume", "block_storage", _in_metadata, r"-\d+", reason=said_of_volume),
    _VolumeTypes("volume type", "block_storage", created_types.run_of, "-.*"),
    _QosSpecs("QoS spec", "block_storage", None, ""),
)


def owned(cloud: Connection, run_id: str) -> tuple[Thing, ...]:
    """What this project has of a run, in the order in which it can be deleted."""
    return tuple(thing for kind in KINDS for thing in owned_of_kind(cloud, kind, run_id))


def owned_of_kind(cloud: Connection, kind: Kind, run_id: str) -> list[Thing]:
    """What this project has of a run and of one kind."""
    return [_thing(kind, one, run_id) for one in _found(cloud, kind) if kind.is_of(one, run_id)]


def runs(cloud: Connection) -> Mapping[str, tuple[Thing, ...]]:
    """Everything of cephfit in this project, by run; each kind of thing is asked for once."""
    found = [(kind, one) for kind in KINDS for one in _found(cloud, kind)]
    run_ids = dict.fromkeys(run_id for kind, one in found if (run_id := kind.run_of(one)))
    # By a run's id more is found than what says itself whose it is.
    return {
        run_id: tuple(_thing(kind, one, run_id) for kind, one in found if kind.is_of(one, run_id))
        for run_id in run_ids
    }


def _thing(kind: Kind, found: Any, run_id: str) -> Thing:
    return Thing(kind.name, str(found.id), str(found.name or ""), _status(found), run_id)


def _found(cloud: Connection, kind: Kind) -> list[Any]:
    return persistently(kind.find, cloud, where=f"{kind.name}s")
