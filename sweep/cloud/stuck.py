"""Volumes that Cinder refuses to delete because of a status that nobody is working on any more."""

import time
from collections.abc import Callable
from typing import Any

import keystoneauth1.exceptions as keystone
from openstack.connection import Connection
from openstack.exceptions import ForbiddenException, NotFoundException

from cephfit.sweep.cloud.connection import persistently, spoken

_DELETABLE = ("available", "error", "error_restoring", "error_extending", "error_managing")
"""Statuses in which Cinder deletes a volume, as it says itself when it refuses."""
_FINAL = ("error_deleting",)
"""Statuses that nothing but a person changes."""
_POLLING_SECONDS = 1.0


def free(cloud: Connection, volume_id: str, *, patience_seconds: float) -> str:
    """Bring a volume of ours into a status in which Cinder deletes it.

    A volume that somebody's server still has is left alone.

    Args:
        cloud: connection.
        volume_id: of a volume whose deletion Cinder refused.
        patience_seconds: how long a status may be one that passes by itself, such as ``detaching``.

    Returns:
        Why it cannot be deleted; empty if it can now, or is gone.

    Raises:
        ClusterError: a service does not answer.
    """
    where = f"volume {volume_id}"
    deadline = time.monotonic() + patience_seconds
    while (volume := persistently(_looked_at, cloud.block_storage.get_volume, volume_id, where=where)) is not None:
        if volume.status in _DELETABLE:
            return ""
        if volume.status in _FINAL or time.monotonic() > deadline:
            break
        if volume.status == "in-use" and _users(cloud, volume):
            break  # that is for its user to end, not for time
        time.sleep(_POLLING_SECONDS)
    else:
        return ""
    if users := _users(cloud, volume):
        return f"server {', '.join(users)} has it; detach it there"
    with spoken(where):
        try:
            cloud.block_storage.reset_volume_status(volume_id, status="error", attach_status="detached")
        except (ForbiddenException, keystone.Forbidden):
            return (
                f"it stays {volume.status}, and only an administrator can free it: "
                f"openstack volume set --state error --detached {volume_id}"
            )
        except NotFoundException:
            pass
    return ""


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
