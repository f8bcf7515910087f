"""Cleanup in a cloud: delete what belongs to a run, and the journal of what this machine created there.

This includes volumes that Cinder refuses to delete because they are stuck in a transient status.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import keystoneauth1.exceptions as keystone
from openstack.connection import Connection
from openstack.exceptions import ForbiddenException, NotFoundException, raise_from_response

from cephfit.cloud.cloud_connection import persistently
from cephfit.cloud.owned_resources import KINDS, STACKS, Kind, OwnedResource, owned_of_kind
from cephfit.cloud.stacks import Stacks
from cephfit.cloud.volumes import volume_types
from cephfit.core.errors import ClusterError
from cephfit.core.journal import Entry, Journal
from cephfit.core.protocols import Progress

_DELETABLE = ("available", "error", "error_restoring", "error_extending", "error_managing")
"""Statuses in which Cinder deletes a volume, from its own refusal message."""
_FINAL = ("error_deleting",)
"""Statuses that only a person can change."""
_DELETING = "deleting"
DELETING_SECONDS = 900.0
"""How long to wait for a requested deletion. The storage may need minutes for a large volume."""
_STUCK_DELETING_SECONDS = DELETING_SECONDS
"""How long a volume may be ``deleting`` before it counts as stuck. A second deletion would disturb the first."""
_STUCK_SECONDS = 60.0
"""How long any other transient status, such as ``detaching``, may last before the volume counts as stuck."""
_POLLING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """A volume, as Cinder reports it.

    Attributes:
        status: of the volume.
        attachments: to servers.
        unchanged_seconds: time since its last change, by the cloud's clocks; 0 where unknown.
    """

    status: str
    attachments: tuple[Mapping[str, Any], ...]
    unchanged_seconds: float


def free(cloud: Connection, volume_id: str, progress: Progress) -> str:
    """Bring one of the run's volumes into a status in which Cinder deletes it.

    A volume that is still attached to an existing server is not changed.

    Args:
        cloud: connection.
        volume_id: a volume that Cinder refused to delete.
        progress: receives notes on what is waited for.

    Returns:
        The reason why it cannot be deleted; empty if it can be deleted now or no longer exists.

    Raises:
        ClusterError: a service does not answer.
    """
    where = f"volume {volume_id}"
    began = time.monotonic()
    hopeless_at, waited_for = began, ""
    while (volume := persistently(_looked_at, cloud, volume_id, where=where)) is not None:
        now = time.monotonic()
        if volume.status != waited_for:
            is_deleting = volume.status == _DELETING
            # Time that Cinder spent deleting it before this call counts, too.
            hopeless_at = (
                now - volume.unchanged_seconds + _STUCK_DELETING_SECONDS if is_deleting else began + _STUCK_SECONDS
            )
        if volume.status in _DELETABLE:
            return ""
        if volume.status in _FINAL or now >= hopeless_at:
            break
        if volume.status == "in-use" and _users(cloud, volume):
            break  # waiting does not help: only its user can detach it
        if volume.status != waited_for:
            waited_for = volume.status
            progress.note(f"{where} is {waited_for}: waiting up to {hopeless_at - now:.0f} s for that to end")
        time.sleep(_POLLING_SECONDS)
    else:
        return ""
    if users := _users(cloud, volume):
        return f"it is attached to server {', '.join(users)}; detach it there"
    if persistently(_is_reset, cloud, volume_id, where=where):
        return ""
    return (
        f"it stays {volume.status}, and only an administrator can free it: "
        f"openstack volume set --state error --detached {volume_id}"
    )


def _is_reset(cloud: Connection, volume_id: str) -> bool:
    """Reset the volume's status, which only administrators may; True if it was reset or is gone."""
    try:
        cloud.block_storage.reset_volume_status(volume_id, status="error", attach_status="detached")
    except (ForbiddenException, keystone.Forbidden):
        return False
    except NotFoundException:
        pass
    return True


def _looked_at(cloud: Connection, volume_id: str) -> _Seen | None:
    """Return a volume as Cinder reports it; None when it is gone."""
    answer = cloud.block_storage.get(f"/volumes/{volume_id}")
    if answer.status_code == 404:
        return None
    raise_from_response(answer)
    volume = answer.json()["volume"]
    seconds = _seconds_between(str(volume.get("updated_at") or ""), str(answer.headers.get("Date") or ""))
    return _Seen(str(volume["status"]), tuple(volume.get("attachments") or ()), seconds)


def _seconds_between(changed: str, asked: str) -> float:
    """Return the seconds from a time of Cinder's to an HTTP header's; at least 0, and 0 where one is missing.

    Both are the cloud's. With this machine's clock, a running deletion could look stuck.
    """
    try:
        # Cinder's times are in UTC but carry no time zone.
        since = datetime.fromisoformat(changed).replace(tzinfo=UTC)
        return max(0.0, (parsedate_to_datetime(asked) - since).total_seconds())
    except (TypeError, ValueError):
        return 0.0


def _users(cloud: Connection, volume: _Seen) -> list[str]:
    """Return the ids of the existing servers that a volume is attached to."""
    servers = [str(attachment["server_id"]) for attachment in volume.attachments]
    return [server for server in servers if persistently(_is_there, cloud, server, where=f"server {server}")]


def _is_there(cloud: Connection, server: str) -> bool:
    try:
        cloud.compute.get_server(server)
    except NotFoundException:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Left:
    """A resource that could not be deleted, and why."""

    resource: OwnedResource
    why: str


def clean(
    cloud: Connection, run_id: str, progress: Progress
) -> tuple[tuple[OwnedResource, ...], tuple[Left, ...]]:
    """Delete all resources of a run in this project. Safe to call again, and after a kill.

    Args:
        cloud: connection.
        run_id: the run.
        progress: receives a note for each resource.

    Returns:
        The resources that were deleted, and those that could not be.
    """
    gone: list[OwnedResource] = []
    left: list[Left] = []
    for kind in KINDS:
        _delete_all(cloud, kind, owned_of_kind(cloud, kind, run_id), progress, gone, left)
    # A stack that could not be deleted because of a resource in it may be deletable now.
    again = [one.resource for one in left if one.resource.kind == STACKS.name]
    if again:
        left = [one for one in left if one.resource.kind != STACKS.name]
        _delete_all(cloud, STACKS, again, progress, gone, left)
    return tuple(gone), tuple(left)


def _delete_all(
    cloud: Connection,
    kind: Kind,
    resources: Sequence[OwnedResource],
    progress: Progress,
    gone: list[OwnedResource],
    left: list[Left],
) -> None:
    """Request all deletions, then wait for them; append each to ``gone`` or ``left``."""
    asked = []
    for resource in resources:
        progress.note(f"{resource.kind} {resource.name} is being deleted")
        if why := _why_not_asked(cloud, kind, resource, progress):
            left.append(Left(resource, why))
        else:
            asked.append(resource)
    deadline = time.monotonic() + DELETING_SECONDS
    for resource in asked:
        if why := _why_not_gone(cloud, kind, resource, deadline):
            left.append(Left(resource, why))
        else:
            gone.append(resource)


def _why_not_asked(cloud: Connection, kind: Kind, resource: OwnedResource, progress: Progress) -> str:
    try:
        return _refusal(cloud, kind, resource) and _freed_or_why(cloud, kind, resource, progress)
    except ClusterError as error:
        return error.what


def _refusal(cloud: Connection, kind: Kind, resource: OwnedResource) -> str:
    """Request a deletion; return the service's refusal, or nothing if it accepted or the resource is gone."""

    def ask() -> None:
        with suppress(NotFoundException):
            kind.delete(cloud, resource.id)

    try:
        persistently(ask, where=f"{resource.kind} {resource.id}")
    except ClusterError as error:
        return error.what
    return ""


def _freed_or_why(cloud: Connection, kind: Kind, resource: OwnedResource, progress: Progress) -> str:
    """Retry a refused deletion, of a volume after freeing it; empty if it was accepted."""
    if kind.name != "volume":
        return _refusal(cloud, kind, resource)
    return free(cloud, resource.id, progress) or _refusal(cloud, kind, resource)


def _why_not_gone(cloud: Connection, kind: Kind, resource: OwnedResource, deadline: float) -> str:
    while True:
        try:
            status = persistently(kind.status, cloud, resource.id, where=f"{resource.kind} {resource.id}")
        except ClusterError as error:
            return error.what
        if status is None:
            return ""
        if status in ("DELETE_FAILED", "error_deleting") or time.monotonic() > deadline:
            why = _reason(cloud, kind, resource)
            return f"it still exists, with status {status or 'unknown'}{f': {why}' if why else ''}"
        time.sleep(_POLLING_SECONDS)


def _reason(cloud: Connection, kind: Kind, resource: OwnedResource) -> str:
    """Return the service's own explanation of a resource's state; empty where it has none."""
    try:
        return persistently(kind.reason, cloud, resource.id, where=f"{resource.kind} {resource.id}")
    except ClusterError:
        return ""


_STACK, _TYPE = "stack", "volume type"
_RUN, _PROJECT, _AUTH_URL = "run", "project", "auth_url"


class CreatedResources:
    """Stacks and volume types of runs, noted before their creation and until their deletion is complete.

    Each entry names its run, and the project and address of its cloud. If the cloud's name means another project
    now, the resource would not be found there and would be taken for deleted. Journals of earlier versions do not
    name the project.

    Args:
        cloud: connection.
        journal: of this cloud.
        progress: receives a note for each deletion.
        name: of the target, for messages.
    """

    def __init__(self, cloud: Connection, journal: Journal, progress: Progress, *, name: str) -> None:
        self._cloud = cloud
        self._journal = journal
        self._progress = progress
        self._name = name

    def note_stack(self, name: str, run_id: str) -> None:
        """Note a stack that is about to be created."""
        self._journal.note(_STACK, name, self._whose(run_id))

    def note_type(self, name: str, run_id: str) -> None:
        """Note a volume type that is about to be created with its QoS spec."""
        self._journal.note(_TYPE, name, self._whose(run_id))

    def words(self) -> tuple[str, ...]:
        """Return a description of each resource in the journal."""
        types = (f"volume type {entry.place} with its QoS spec" for entry in self._journal.entries(_TYPE))
        return (*(f"stack {entry.place}" for entry in self._journal.entries(_STACK)), *types)

    def require_here(self) -> None:
        """Require that all resources are in the project that the cloud's name means now.

        Raises:
            ClusterError: a resource is in another project.
        """
        here = str(self._cloud.current_project_id or "")
        entries = self._journal.entries()
        for entry in entries:
            project = _noted(entry, _PROJECT)
            if project and here and project != here:
                raise ClusterError(
                    f"{entry.kind} {entry.place} was created in project {project} of {_noted(entry, _AUTH_URL)}, "
                    f"and this cloud's name now means project {here} of {self._auth_url()}",
                    where=self._name,
                    remedy=self._way_out(entries),
                )

    def _way_out(self, entries: Sequence[Entry]) -> str:
        """Return the remedy for a journal of another project, or of several, with a command for each run."""
        homes = {(_run_of(entry), _noted(entry, _PROJECT)): None for entry in entries}
        projects = {project for _, project in homes}
        cleaning = ", ".join(
            f"`cephfit cloud clean {run} --cloud NAME` in project {project or '(not noted)'}"
            for run, project in homes
        )
        which = "that" if len(homes) == 1 else "each of these"
        delete = (
            f"delete what remains, with a NAME of clouds.yaml that means the project: {cleaning}; only when "
            f"{which} has deleted all it found, delete {self._journal.path}"
        )
        if len(projects) > 1:
            return delete
        return (
            "make clouds.yaml or the OS_* variables mean that project again, and run `cephfit restore`; or "
            + delete
        )

    def delete(self, stacks_of: Callable[[str], Stacks]) -> None:
        """Delete all resources in the journal.

        Args:
            stacks_of: returns the stacks of a run.

        Raises:
            ClusterError: a resource cannot be deleted; it stays in the journal.
        """
        stacks = list(self._journal.entries(_STACK))
        for entry in stacks:
            self._progress.note(f"stack {entry.place} is being deleted")
            stacks_of(_run_of(entry)).ask_deletion(entry.place)
        self._forget_each(stacks, lambda entry: stacks_of(_run_of(entry)).delete(entry.place))
        # The volumes of these types were deleted with the stacks.
        types = list(self._journal.entries(_TYPE))
        for entry in types:
            self._progress.note(f"volume type {entry.place} and its QoS spec are being deleted")
        self._forget_each(types, lambda entry: volume_types.delete(self._cloud, _run_of(entry), entry.place))
        self._journal.finish()

    def _forget_each(self, entries: Iterable[Entry], delete: Callable[[Entry], None]) -> None:
        for entry in entries:
            delete(entry)
            self._journal.forget(entry.kind, entry.place)

    def _whose(self, run_id: str) -> dict[str, str]:
        project = str(self._cloud.current_project_id or "")
        return {_RUN: run_id, _PROJECT: project, _AUTH_URL: self._auth_url()}

    def _auth_url(self) -> str:
        return str(self._cloud.config.auth.get("auth_url") or "")


def _run_of(entry: Entry) -> str:
    return _noted(entry, _RUN) or str(entry.was)


def _noted(entry: Entry, key: str) -> str:
    """Return a value of an entry; entries of earlier versions are the run's id alone."""
    was: Any = entry.was
    return str(was.get(key) or "") if isinstance(was, dict) else ""
