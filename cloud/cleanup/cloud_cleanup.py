"""Delete everything in a cloud that belongs to a run, in the right order.

Volumes that Cinder refuses to delete because of a status that nobody is working on any more.

Deleting everything in a cloud that belongs to a run of cephfit, in the right order.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import keystoneauth1.exceptions as keystone
from openstack.connection import Connection
from openstack.exceptions import ForbiddenException, NotFoundException, raise_from_response

from cephfit.cloud.cleanup.owned_resources import KINDS, STACKS, Kind, Thing, owned_of_kind
from cephfit.cloud.cloud_connection import persistently
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Progress

_DELETABLE = ("available", "error", "error_restoring", "error_extending", "error_managing")
"""Statuses in which Cinder deletes a volume, as it says itself when it refuses."""
_FINAL = ("error_deleting",)
"""Statuses that nothing but a person changes."""
_DELETING = "deleting"
DELETING_SECONDS = 900.0
"""For which Cinder may be deleting a volume, from when it began: the storage may need minutes for a large one, and
whoever deletes it a second time meanwhile gets in its way. Whoever has just asked for it waits so long, too."""
_STUCK_SECONDS = 60.0
"""For which any other status may last that passes by itself, such as ``detaching``."""
_POLLING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """A volume, as Cinder told of it.

    Attributes:
        status: its own.
        attachments: of servers, as Cinder tells them.
        unchanged_seconds: for which it is as it is, all by clocks of the cloud; 0 where nobody told.
    """

    status: str
    attachments: tuple[Mapping[str, Any], ...]
    unchanged_seconds: float


def free(cloud: Connection, volume_id: str, progress: Progress) -> str:
    """Bring a volume of ours into a status in which Cinder deletes it.

    A volume that somebody's server still has is left alone.

    Args:
        cloud: connection.
        volume_id: of a volume whose deletion Cinder refused.
        progress: hears what is waited for.

    Returns:
        Why it cannot be deleted; empty if it can now, or is gone.

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
            # What it was deleting before we looked counts, too.
            hopeless_at = (
                now - volume.unchanged_seconds + DELETING_SECONDS if is_deleting else began + _STUCK_SECONDS
            )
        if volume.status in _DELETABLE:
            return ""
        if volume.status in _FINAL or now >= hopeless_at:
            break
        if volume.status == "in-use" and _users(cloud, volume):
            break  # that is for its user to end, not for time
        if volume.status != waited_for:
            waited_for = volume.status
            progress.note(f"{where} is {waited_for}: it gets {hopeless_at - now:.0f} s to end that by itself")
        time.sleep(_POLLING_SECONDS)
    else:
        return ""
    if users := _users(cloud, volume):
        return f"server {', '.join(users)} has it; detach it there"
    if persistently(_is_reset, cloud, volume_id, where=where):
        return ""
    return (
        f"it stays {volume.status}, and only an administrator can free it: "
        f"openstack volume set --state error --detached {volume_id}"
    )


def _is_reset(cloud: Connection, volume_id: str) -> bool:
    """Whether Cinder was told that nobody is at work on a volume, as administrators may, or the volume is gone."""
    try:
        cloud.block_storage.reset_volume_status(volume_id, status="error", attach_status="detached")
    except (ForbiddenException, keystone.Forbidden):
        return False
    except NotFoundException:
        pass
    return True


def _looked_at(cloud: Connection, volume_id: str) -> _Seen | None:
    """What Cinder says of a volume; None when it is gone."""
    answer = cloud.block_storage.get(f"/volumes/{volume_id}")
    if answer.status_code == 404:
        return None
    raise_from_response(answer)
    volume = answer.json()["volume"]
    seconds = _seconds_between(str(volume.get("updated_at") or ""), str(answer.headers.get("Date") or ""))
    return _Seen(str(volume["status"]), tuple(volume.get("attachments") or ()), seconds)


def _seconds_between(changed: str, asked: str) -> float:
    """From a moment of Cinder's to one in an HTTP header, never negative; 0 where one is not there.

    This machine's clock may be off from the cloud's, which would make a deletion that goes on look hopeless.
    """
    try:
        # Cinder's times are in UTC and do not say so.
        since = datetime.fromisoformat(changed).replace(tzinfo=UTC)
        return max(0.0, (parsedate_to_datetime(asked) - since).total_seconds())
    except (TypeError, ValueError):
        return 0.0


def _users(cloud: Connection, volume: _Seen) -> list[str]:
    """Ids of the servers that have a volume, and are there."""
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
    """What could not be deleted, and why."""

    thing: Thing
    why: str


def clean(cloud: Connection, run_id: str, progress: Progress) -> tuple[tuple[Thing, ...], tuple[Left, ...]]:
    """Delete everything of a run that this project has. Safe to call again, and after a kill.

    Args:
        cloud: connection.
        run_id: whose things.
        progress: hears what is being deleted.

    Returns:
        What was deleted, and what could not be.
    """
    gone: list[Thing] = []
    left: list[Left] = []
    for kind in KINDS:
        _delete_all(cloud, kind, owned_of_kind(cloud, kind, run_id), progress, gone, left)
    # A stack that could not be deleted with something in it can be once that is gone.
    again = [one.thing for one in left if one.thing.kind == STACKS.name]
    if again:
        left = [one for one in left if one.thing.kind != STACKS.name]
        _delete_all(cloud, STACKS, again, progress, gone, left)
    return tuple(gone), tuple(left)


def _delete_all(
    cloud: Connection,
    kind: Kind,
    things: Sequence[Thing],
    progress: Progress,
    gone: list[Thing],
    left: list[Left],
) -> None:
    """Ask for the end of all, then wait for it; each comes to ``gone`` or to ``left``."""
    asked = []
    for thing in things:
        progress.note(f"{thing.kind} {thing.name} is being deleted")
        if why := _why_not_asked(cloud, kind, thing, progress):
            left.append(Left(thing, why))
        else:
            asked.append(thing)
    deadline = time.monotonic() + DELETING_SECONDS
    for thing in asked:
        if why := _why_not_gone(cloud, kind, thing, deadline):
            left.append(Left(thing, why))
        else:
            gone.append(thing)


def _why_not_asked(cloud: Connection, kind: Kind, thing: Thing, progress: Progress) -> str:
    try:
        return _refusal(cloud, kind, thing) and _freed_or_why(cloud, kind, thing, progress)
    except ClusterError as error:
        return error.what


def _refusal(cloud: Connection, kind: Kind, thing: Thing) -> str:
    """The service's words against deleting a thing; empty if it took the request, or the thing is gone."""

    def ask() -> None:
        with suppress(NotFoundException):
            kind.delete(cloud, thing.id)

    try:
        persistently(ask, where=f"{thing.kind} {thing.id}")
    except ClusterError as error:
        return error.what
    return ""


def _freed_or_why(cloud: Connection, kind: Kind, thing: Thing, progress: Progress) -> str:
    """Ask again for a volume's end once it is in a status in which it may end; empty if that was taken."""
    if kind.name != "volume":
        return _refusal(cloud, kind, thing)
    return free(cloud, thing.id, progress) or _refusal(cloud, kind, thing)


def _why_not_gone(cloud: Connection, kind: Kind, thing: Thing, deadline: float) -> str:
    while True:
        try:
            status = persistently(kind.look, cloud, thing.id, where=f"{thing.kind} {thing.id}")
        except ClusterError as error:
            return error.what
        if status is None:
            return ""
        if status in ("DELETE_FAILED", "error_deleting") or time.monotonic() > deadline:
            why = _reason(cloud, kind, thing)
            return f"it is still there, with status {status or 'unknown'}{f': {why}' if why else ''}"
        time.sleep(_POLLING_SECONDS)


def _reason(cloud: Connection, kind: Kind, thing: Thing) -> str:
    """The service's own words for the state that a thing is in; empty where it has none."""
    try:
        return persistently(kind.reason, cloud, thing.id, where=f"{thing.kind} {thing.id}")
    except ClusterError:
        return ""
