"""What the hypervisor counts of a guest's I/O: Nova's server diagnostics, to hold against fio's own figures."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import novaclient.exceptions as nova  # type: ignore[import-untyped]
from novaclient import client as nova_client
from openstack.connection import Connection

from cephfit.errors import ClusterError
from cephfit.protocols import Client
from cephfit.sweep.cloud.connection import one_line, persistently
from cephfit.sweep.cloud.stacks import Node
from cephfit.sweep.engines.engine import CountsIo, MovedBytes

_WITH_DEVICE_NAMES = "2.47"
"""Before 2.48 the hypervisor's own names are the answer (``vdb_read``); after it, disks have no names at all."""
_COUNT_SECONDS = 1.0


class ServerDiagnostics(CountsIo):
    """Counts the I/O of guests of libvirt. The SDK has no call for it, python-novaclient has.

    Nova lets administrators ask unless its policy says otherwise; whoever may not ask gets the reason.

    Args:
        cloud: connection, whose session is used.
        nodes: the guests.
    """

    count_source = "the hypervisor (Nova's server diagnostics)"
    count_seconds = _COUNT_SECONDS

    def __init__(self, cloud: Connection, nodes: Sequence[Node]) -> None:
        self._nova = nova_client.Client(
            _WITH_DEVICE_NAMES,
            session=cloud.session,
            region_name=cloud.config.region_name or None,
            endpoint_override=cloud.config.get_endpoint("compute"),  # as clouds.yaml may say
        )
        self._nodes = {node.name: node for node in nodes}
        self._devices = {node.name: device_of(cloud, node) for node in nodes}

    def moved(self, client: Client) -> MovedBytes:
        """See CountsIo.

        Raises:
            ClusterError: Nova does not tell, or the hypervisor does not count for this disk.
        """
        node = self._nodes[client.name]
        where = f"server {node.server}"
        try:
            _, body = persistently(self._nova.servers.diagnostics, node.server, where=where)
        except nova.Forbidden:
            raise ClusterError(
                "Nova's policy does not let this user ask for server diagnostics", where=where
            ) from None
        except nova.ClientException as error:
            raise ClusterError(one_line(error), where=where) from None
        return moved_of(body or {}, self._devices[client.name])


def moved_of(diagnostics: Mapping[str, Any], device: str) -> MovedBytes:
    """The counters of one disk.

    Args:
        diagnostics: Nova's answer up to API version 2.47, of libvirt: ``{"vdb_read": 4096, ...}``.
        device: such as ``vdb``.

    Raises:
        ClusterError: the hypervisor does not count for this disk.
    """
    read, written = diagnostics.get(f"{device}_read"), diagnostics.get(f"{device}_write")
    if not isinstance(read, int) or not isinstance(written, int):
        raise ClusterError(f"the hypervisor does not say what disk {device} moved")
    return MovedBytes(read, written)


def device_of(cloud: Connection, node: Node) -> str:
    """The name by which the hypervisor knows a guest's volume, such as ``vdb``.

    Raises:
        ClusterError: the volume is not attached to the guest.
    """
    found = persistently(
        lambda: list(cloud.compute.volume_attachments(node.server)), where=f"server {node.server}"
    )
    for attachment in found:
        if attachment.volume_id == node.volume and attachment.device:
            return re.sub("^/dev/", "", str(attachment.device))
    raise ClusterError(f"volume {node.volume} is not attached", where=f"client {node.name} (server {node.server})")
