"""Deleting everything in a cloud that belongs to a run of cephfit, in the right order."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from openstack.connection import Connection
from openstack.exceptions import NotFoundException

from cephfit.errors import ClusterError
from cephfit.protocols import Progress
from cephfit.sweep.cloud.connection import persistently
from cephfit.sweep.cloud.owned import KINDS, STACKS, Kind, Thing, owned_of_kind
from cephfit.sweep.cloud.stuck import DELETING_SECONDS, free

_POLLING_SECONDS = 1.0


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
