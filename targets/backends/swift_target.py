"""A Swift container as a target; each client has the segments of its volume as objects in it."""

from collections.abc import Mapping
from pathlib import Path

from cephfit.ceph.environment.scopes import SWIFT
from cephfit.core.errors import InputError
from cephfit.core.protocols import Client
from cephfit.targets.backends.backend_target import BackendTarget
from cephfit.targets.backends.storage_server import ExportsVolumes, NbdServer, ServerPlace
from cephfit.targets.backends.swift_account import SwiftAccount, SwiftAddress

_CREATED = "objects"
_PLUGIN = Path(__file__).with_name("swift_blocks.py")
_MOST_NBYTES = 5 << 30
"""Largest object (``max_file_size`` of swift.conf)."""


def policy_of(replicas: str) -> str:
    """Return the storage policy of a lab's server with a number of copies."""
    return f"replicas-{replicas}"


class SwiftTarget(BackendTarget):
    """Objects in one container, or on a lab's server in one for each number of copies.

    The layout is in the names of the objects, so configurations with another one have other volumes. ``reset``
    deletes the objects of this target; others it does not touch.
    """

    protocol = SWIFT
    client_side = "nbdkit with a plugin on swiftclient"

    def __init__(
        self,
        name: str,
        address: SwiftAddress,
        key: str,
        place: ServerPlace,
        devices: ExportsVolumes,
        *,
        for_change: bool = True,
    ) -> None:
        super().__init__(name, place, devices, for_change=for_change)
        self._address = address
        self._key = key
        self._account = SwiftAccount(address, key, enter=place.server.enter)
        self._layout: Mapping[str, str] = {}

    def why_not_by_client(self, key: str, value: str) -> str:
        if key == "replicas":
            return self._server.why_not(key)
        if int(value) > _MOST_NBYTES:
            return "segments of more than 5G are missing in Swift, whose largest object has 5G"
        return ""

    def in_effect(self, key: str, wanted: str, client: Client) -> str:
        """As ``BackendTarget.in_effect``, by the container's policy or the first object's size.

        A volume without objects has no size of segments yet: ``wanted``.
        """
        if key == "replicas":
            return self._account.state(self._container()).get("X-Storage-Policy", "").removeprefix(policy_of(""))
        prefix = self._volume(int(client.name[1:]), client.nbytes).partition("/")[2]
        first = next(iter(self._account.names(self._container(), prefix)), None)
        if first is None:
            return wanted
        nbytes = self._account.state(self._container(), first)["Content Length"]
        return wanted if int(nbytes) == min(int(wanted), client.nbytes) else nbytes

    def _nbd_server(self, index: int, nbytes: int, options: Mapping[str, str]) -> NbdServer:
        given = {
            "auth": self._address.auth,
            "user": self._address.user,
            "container": self._container(),
            "prefix": self._volume(index, nbytes).partition("/")[2],
            "size": nbytes,
            "segment_size": options["segment_size"],
        }
        words = (f"{key}={value}" for key, value in given.items())
        argv = ("nbdkit", "--exit-with-parent", "--foreground", "python", str(_PLUGIN), *words)
        return NbdServer(argv, "nbdkit nbdkit-plugin-python python3-swiftclient", {"ST_KEY": self._key})

    def _container(self) -> str:
        if self._server.why_not("replicas"):
            return self._address.container
        return f"{self._address.container}-{self._layout['replicas']}"

    def _volume(self, index: int, nbytes: int) -> str:
        return f"{self._container()}/cephfit-{self._tag}-c{index}-{nbytes}-{self._layout['segment_size']}/"

    def _require_volumes(self, n_clients: int, nbytes: int, options: Mapping[str, str]) -> None:
        self._layout = options
        if self._server.why_not("replicas"):
            self._account.state(self._container())
        else:
            self._account.create(self._container(), policy_of(options["replicas"]))
        for index in range(n_clients):
            volume = self._volume(index, nbytes)
            if self._journal.get(_CREATED, volume) is None:
                container, _, prefix = volume.partition("/")
                if self._account.names(container, prefix):
                    raise InputError(
                        f"objects {prefix}... already exist in the container, and no journal on this machine "
                        "knows them",
                        where=self.name,
                        remedy="delete them on the server if they are left from an earlier sweep",
                    )
                self._journal.note(_CREATED, volume, None)

    def _remove_volumes(self) -> None:
        with self._server.full_speed():
            for entry in self._journal.entries(_CREATED):
                container, _, prefix = entry.place.partition("/")
                self._account.delete(container, prefix)
                self._journal.forget(_CREATED, entry.place)
