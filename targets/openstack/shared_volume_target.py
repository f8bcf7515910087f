"""OpenStack as a place of several virtual machines that use one Cinder volume."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cephfit.cloud.cloud_choice import CloudChoice, require_whole
from cephfit.cloud.guests.guest_transport import SERVER
from cephfit.cloud.shared_attachments import attach_to_all, require_multiattach
from cephfit.cloud.stacks import Node
from cephfit.cloud.volume_types import VolumeKind
from cephfit.core.errors import InputError
from cephfit.core.protocols import Progress
from cephfit.targets.openstack.openstack_target import OpenStackTarget


class SharedVolumeTarget(OpenStackTarget):
    """An ``OpenStackTarget`` with one volume of a multi-attach type, attached to every guest.

    Args:
        choice: see OpenStackTarget. Its guests have a network, on which their fio servers are reached.
        progress: shows long steps.

    Raises:
        InputError: the volume type is not multi-attach, or the guests have no network.
        ClusterError: see OpenStackTarget.
    """

    _shares_volume = True

    def __init__(self, choice: CloudChoice, *, progress: Progress | None = None) -> None:
        require_whole(choice)
        if not choice.network or choice.results not in ("", SERVER):
            raise InputError(
                "guests with a shared volume are measured by their fio servers, which this machine must reach",
                where="--target openstack",
                remedy="add network=NAME to the target, and omit results=",
            )
        super().__init__(replace(choice, results=SERVER), progress=progress)
        try:
            require_multiattach(self._cloud, choice.volume_type)
        except BaseException:
            self.close()
            raise

    def _stack_of(self, kind: VolumeKind, gib: int) -> str:
        return f"{super()._stack_of(kind, gib)}-shared"

    def _parameters(self, volume_type: str, gib: int, count: int) -> dict[str, Any]:
        return {**super()._parameters(volume_type, gib, count), "shared": True}

    def _before_use(self, nodes: Sequence[Node]) -> None:
        self._progress.note(f"attaching volume {nodes[0].volume} to {len(nodes)} servers")
        attach_to_all(self._cloud, nodes[0].volume, [node.server for node in nodes])

    def _nodes_to_fill(self) -> Sequence[Node]:
        return self._nodes[:1]
