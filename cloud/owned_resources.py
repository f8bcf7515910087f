"""Resources that a run owns in a cloud: their kinds, in the order of deletion, and how each kind is found."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import NotFoundException
from openstack.orchestration.v1.stack import Stack

from cephfit.cloud.cloud_connection import persistently
from cephfit.cloud.ownership import NAME_PREFIX, RUN_KEY, TAG_PREFIX, has_own_name
from cephfit.cloud.stacks import failures, volume_failure
from cephfit.cloud.volumes import volume_types

_DESCRIPTION = "cephfit run "
"""Begin of the description of a run's security group; the run's id follows."""
_MADE_RUN_ID = r".+-\d{8}T\d{6}-[0-9a-f]{4}|trace-.+-[0-9a-f]{8}"
"""Form of the run ids that cephfit creates. A resource that only its name assigns to a run must have this form:
another user may call a server group cephfit-mine."""


@dataclass(frozen=True, slots=True)
class OwnedResource:
    """A resource in a cloud that a run owns.

    Attributes:
        kind: ``stack``, ``server``, ``volume`` ...
        id: in its service.
        name: for people.
        status: reported by its service; empty where it has none.
        run_id: its owner.
    """

    kind: str
    id: str
    name: str
    status: str
    run_id: str


Owner = Callable[[Any], str | None]
"""Returns the run that a resource's own data name."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of resources, found and deleted by three calls of the SDK that are named after it.

    Attributes:
        name: for people; in lower case and with underscores it is the name in the SDK's calls.
        service: of the SDK's connection.
        of: returns the run by tag, metadata or description; None where only the name assigns it.
        named: regular expression of the rest of a resource's name, after ``cephfit-RUN``.
        listing: arguments of the call that lists the resources.
        looking: arguments of the call that gets one.
        reason: returns a service's explanation of a resource's status; empty where it has none.
    """

    name: str
    service: str
    of: Owner | None
    named: str
    listing: Callable[[Connection], Mapping[str, Any]] = lambda _: {}
    looking: Mapping[str, Any] = field(default_factory=dict)
    reason: Callable[[Connection, str], str] = lambda _cloud, _thing: ""

    def names(self, run_id: str) -> re.Pattern[str]:
        """Return the pattern of the names of a run's resources."""
        return re.compile(re.escape(f"{NAME_PREFIX}-{run_id}") + self.named)

    def is_of(self, resource: Any, run_id: str) -> bool:
        """Return whether a resource belongs to a run: by tag or metadata where possible, else by its name."""
        return self.of(resource) == run_id if self.of else bool(self.names(run_id).fullmatch(resource.name or ""))

    def run_of(self, resource: Any) -> str | None:
        """Return the run of a resource, from its data or from a name that only cephfit gives."""
        if self.of:
            return self.of(resource)
        found = re.fullmatch(f"{NAME_PREFIX}-({_MADE_RUN_ID}){self.named}", resource.name or "")
        return found[1] if found else None

    def find(self, cloud: Connection) -> list[Any]:
        """Return all resources of this kind in this project."""
        found = self._call(cloud, "{}s")(**self.listing(cloud))
        return [one for one in found if _is_this_projects(cloud, one)]

    def status(self, cloud: Connection, resource: str) -> str | None:
        """Return the status of a resource; None when it is gone."""
        try:
            found = self._call(cloud, "get_{}")(resource, **self.looking)
        except NotFoundException:
            return None
        return None if (status := _status(found)) == "DELETE_COMPLETE" else status

    def delete(self, cloud: Connection, resource: str) -> None:
        """Request the deletion of a resource; the service may complete it later."""
        self._call(cloud, "delete_{}")(resource)

    def _call(self, cloud: Connection, name: str) -> Callable[..., Any]:
        of_kind = name.format(self.name.lower().replace(" ", "_"))
        call: Callable[..., Any] = getattr(getattr(cloud, self.service), of_kind)
        return call


class _VolumeTypes(Kind):
    """Volume types of runs; Cinder refuses to delete one while a volume uses it."""

    def find(self, cloud: Connection) -> list[Any]:
        """Return those of all projects that this user may see."""
        return volume_types.volume_types(cloud)

    def status(self, cloud: Connection, resource: str) -> str | None:
        """See Kind."""
        try:
            cloud.block_storage.get_type(resource)
        except NotFoundException:
            return None
        return ""

    def delete(self, cloud: Connection, resource: str) -> None:
        """See Kind."""
        cloud.block_storage.delete_type(resource)


class _QosSpecs(Kind):
    """QoS specs of these types, with the same names; Cinder refuses to delete one while a type uses it."""

    def is_of(self, resource: Any, run_id: str) -> bool:
        """See Kind."""
        return has_own_name(resource.name, run_id)

    def run_of(self, resource: Any) -> str | None:
        """See Kind: the hash at the end of the name shows where in it the run's id ends."""
        ends = (dash.start() for dash in re.finditer("-", resource.name))
        ids = (resource.name[len(NAME_PREFIX) + 1 : end] for end in ends if end > len(NAME_PREFIX))
        return next((run_id for run_id in ids if has_own_name(resource.name, run_id)), None)

    def find(self, cloud: Connection) -> list[Any]:
        """Return those of all projects; empty for users to whom Cinder shows none."""
        return volume_types.qos_specs(cloud)


def _tagged(stack: Any) -> str | None:
    return next((t.removeprefix(TAG_PREFIX) for t in stack.tags or () if t.startswith(TAG_PREFIX)), None)


def _in_metadata(resource: Any) -> str | None:
    return (resource.metadata or {}).get(RUN_KEY)


def _described(group: Any) -> str | None:
    description = str(group.description or "")
    return description.removeprefix(_DESCRIPTION) if description.startswith(_DESCRIPTION) else None


def _is_this_projects(cloud: Connection, resource: Any) -> bool:
    """Return whether a resource is this project's: Heat shows administrators the stacks of all projects."""
    if not isinstance(resource, Stack):
        return True
    return any(f"/{cloud.current_project_id}/stacks/" in link["href"] for link in resource.links or ())


def _of_project(cloud: Connection) -> Mapping[str, Any]:
    """Return the project as a filter: without it Neutron shows administrators all projects' resources."""
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

# A resource is deleted before those that it uses.
KINDS = (
    STACKS,
    Kind("server", "compute", _in_metadata, r"-\d+", reason=_fault_of_server),
    Kind("port", "network", None, r"-\d+", _of_project),
    Kind("security group", "network", _described, "", _of_project),
    Kind("server group", "compute", None, ""),
    Kind("volume", "block_storage", _in_metadata, r"-\d+", reason=volume_failure),
    _VolumeTypes("volume type", "block_storage", volume_types.run_of, "-.*"),
    _QosSpecs("QoS spec", "block_storage", None, ""),
)


def owned(cloud: Connection, run_id: str) -> tuple[OwnedResource, ...]:
    """Return the resources of a run in this project, in the order of deletion."""
    return tuple(resource for kind in KINDS for resource in owned_of_kind(cloud, kind, run_id))


def owned_of_kind(cloud: Connection, kind: Kind, run_id: str) -> list[OwnedResource]:
    """Return the resources of a run and of one kind in this project."""
    return [_thing(kind, one, run_id) for one in _found(cloud, kind) if kind.is_of(one, run_id)]


def runs(cloud: Connection) -> Mapping[str, tuple[OwnedResource, ...]]:
    """Return all of cephfit's resources in this project, by run; each kind is listed once."""
    found = [(kind, one) for kind in KINDS for one in _found(cloud, kind)]
    run_ids = dict.fromkeys(run_id for kind, one in found if (run_id := kind.run_of(one)))
    # A known run id finds more resources than those that name their run.
    return {
        run_id: tuple(_thing(kind, one, run_id) for kind, one in found if kind.is_of(one, run_id))
        for run_id in run_ids
    }


def _thing(kind: Kind, found: Any, run_id: str) -> OwnedResource:
    return OwnedResource(kind.name, str(found.id), str(found.name or ""), _status(found), run_id)


def _found(cloud: Connection, kind: Kind) -> list[Any]:
    return persistently(kind.find, cloud, where=f"{kind.name}s")
