"""Volumes that several guests use at once: their volume types, and their attachment to every guest.

Heat attaches volumes by Nova's API 2.1, and Nova attaches multi-attach volumes from 2.60 on. So the attachments
are made here. They end with their servers.
"""

from collections.abc import Mapping, Sequence

from openstack.connection import Connection

from cephfit.cloud.cloud_connection import made_once, persistently
from cephfit.cloud.volumes.volume_types import volume_types
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.waiting import wait_until_clear

MULTIATTACH: Mapping[str, str] = {"multiattach": "<is> True"}
"""Extra specs of a volume type whose volumes several servers may use at once."""
_ATTACHING_SECONDS = 300.0
_POLLING_SECONDS = 1.0


def require_multiattach(cloud: Connection, name: str) -> None:
    """Check that several servers may use a volume of a type at once.

    Raises:
        InputError: the type does not allow it, as far as this user sees its extra specs.
    """
    known = [
        str(one.name) for one in volume_types(cloud) if MULTIATTACH.items() <= (one.extra_specs or {}).items()
    ]
    if name not in known:
        choices = f"choose from: {', '.join(sorted(known))}" if known else "ask an administrator for such a type"
        raise InputError(
            f"the volume type {name} has no extra spec multiattach='<is> True': each volume is for one guest",
            where="volume_type",
            remedy=f"{choices} (before its release Xena, Cinder shows extra specs to administrators alone)",
        )


def attach_to_all(
    cloud: Connection, volume: str, servers: Sequence[str], *, seconds: float = _ATTACHING_SECONDS
) -> None:
    """Attach one volume to each server that does not have it, and wait until all have it.

    One after the other, because Cinder refuses an attachment while it makes another of the same volume.

    Args:
        cloud: connection.
        volume: id of a multi-attach volume.
        servers: ids of active servers.
        seconds: limit for each attachment.

    Raises:
        ClusterError: Nova refuses an attachment, or it takes too long.
    """
    for server in servers:
        _attach(cloud, volume, server, seconds=seconds)


def _attach(cloud: Connection, volume: str, server: str, *, seconds: float) -> None:
    where = f"volume {volume}"

    def known() -> bool | None:
        """Return whether Nova has the attachment; None if not."""
        return any(one.volume_id == volume for one in cloud.compute.volume_attachments(server)) or None

    def attach() -> bool:
        cloud.compute.create_volume_attachment(server, volume=volume)
        return True

    def problem() -> str:
        found = persistently(lambda: cloud.block_storage.get_volume(volume), where=where)
        users = [str(one["server_id"]) for one in found.attachments or ()]
        return "" if found.status == "in-use" and server in users else f"its status is {found.status}"

    if not persistently(known, where=where):
        made_once(attach, known, where=where)
    if left := wait_until_clear(problem, seconds=seconds, poll_seconds=_POLLING_SECONDS):
        raise ClusterError(
            f"it is not attached to server {server} after {seconds:.0f} s: {left}",
            where=where,
            remedy="look at the logs of nova-compute and cinder-volume",
        )
