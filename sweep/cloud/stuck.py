"""Volumes that Cinder refuses to delete because of a status that nobody is working on any more."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import keystoneauth1.exceptions as keystone
from openstack.connection import Connection
from openstack.exceptions import ForbiddenException, NotFoundException

from cephfit.protocols import Progress
from cephfit.sweep.cloud.connection import persistently

_DELETABLE = ("available", "error", "error_restoring", "error_extending", "error_managing")
"""Statuses in which Cinder deletes a volume, as it says itself when it refuses."""
_FINAL = ("error_deleting",)
"""Statuses that nothing but a person changes."""
_DELETING = "deleting"
_DELETING_SECONDS = 900.0
"""For which Cinder may be deleting a volume, from when it began: the storage may need minutes for a large one, and
whoever deletes it a second time meanwhile gets in its way."""
_STUCK_SECONDS = 60.0
"""For which any other status may last that passes by itself, such as ``detaching``."""
_POLLING_SECONDS = 1.0


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
    began = time.time()
    waited_for = ""
    while (volume := persistently(_looked_at, cloud.block_storage.get_volume, volume_id, where=where)) is not None:
        if volume.status in _DELETABLE:
            return ""
        if volume.status in _FINAL or time.time() > _hopeless_at(volume, began):
            break
        if volume.status == "in-use" and _users(cloud, volume):
            break  # that is for its user to end, not for time
        if volume.status != waited_for:
            waited_for = str(volume.status)
            seconds = max(0.0, _hopeless_at(volume, began) - time.time())
            progress.note(f"{where} is {waited_for}: it gets {seconds:.0f} s to end that by itself")
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


def _hopeless_at(volume: Any, began: float) -> float:
    """When nobody can be at work on a volume any more, in seconds since 1970."""
    if volume.status != _DELETING:
        return began + _STUCK_SECONDS
    changed = str(volume.updated_at or "")
    # Cinder's times are in UTC and do not say so.
    since = datetime.fromisoformat(changed).replace(tzinfo=UTC).timestamp() if changed else began
    return min(since, began) + _DELETING_SECONDS


def _users(cloud: Connection, volume: Any) -> list[str]:
    """Ids of the servers that have a volume, and are there."""
    servers = [str(attachment["server_id"]) for attachment in volume.attachments or ()]
    return [s for s in servers if persistently(_looked_at, cloud.compute.get_server, s, where=f"server {s}")]


def _looked_at(look: Callable[[str], Any], thing: str) -> Any:
    """What a service says of a thing; None when it is gone."""
    try:
        return look(thing)
    except NotFoundException:
        return None
