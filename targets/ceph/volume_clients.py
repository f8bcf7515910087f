"""The clients of a Ceph target: their ceph.conf, volumes and caches.

Volumes are filled with incompressible data, so that reads find objects and compression has no effect.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cephfit.ceph.cluster_adapters import ClusterAdapters
from cephfit.ceph.delivery.client_conf import (
    ClientAccess,
    drop_client_caches,
    make_socket_folder,
    read_back_clients,
    read_back_new_client,
    remove_dead_sockets,
    remove_socket_folder,
    render_client_conf,
    socket_folder,
    write_client_conf,
)
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.ceph.volumes import Volume, Volumes
from cephfit.core.child_process import end, find_program, start
from cephfit.core.errors import ClusterError, HostError
from cephfit.core.protocols import CephAdmin, Client
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.measurement import RBD_OBJECT_NBYTES
from cephfit.measure.block_device import flush_buffers
from cephfit.measure.engine import SLOWEST_NBYTES_PER_S


def fill(volumes: Sequence[Volume], *, conf: Path, client_id: str = "admin") -> None:
    """Write every byte of the images once, through librbd, all images in parallel.

    Args:
        volumes: their sizes are multiples of 4 MiB.
        conf: ceph.conf of the client.
        client_id: such as ``admin``.

    Raises:
        HostError: fio is not installed.
        ClusterError: fio did not write all data.
    """
    argv = [
        find_program("fio", package="fio"), "--output-format=json", "--ioengine=rbd",
        f"--clientname={client_id}", "--rw=write", f"--bs={RBD_OBJECT_NBYTES}", "--iodepth=4", "--direct=1",
        "--refill_buffers", "--buffer_compress_percentage=0", "--randrepeat=0", "--end_fsync=1",
        "--thread", "--group_reporting",
    ]  # fmt: skip
    for volume in volumes:
        argv += [f"--name={volume.image}", f"--pool={volume.pool}", f"--rbdname={volume.image}"]
        argv += [f"--size={volume.nbytes}"]
    nbytes = sum(v.nbytes for v in volumes)
    seconds = 60 + nbytes / SLOWEST_NBYTES_PER_S
    # fio's rbd engine has no option for the configuration file; librados reads this variable.
    process = start(argv, environment={"CEPH_CONF": str(conf.absolute())})
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"filling {len(volumes)} volumes did not end within {seconds:.0f} s", remedy="see the cluster's health"
        ) from None
    finally:
        end(process, "fio")
    written = _written(output)
    if process.returncode == 0 and written >= nbytes:
        return
    lines = [line for line in (errors.strip() or output.strip()).splitlines() if line.strip("{} ")]
    raise ClusterError(
        f"fio could not fill the volumes: it wrote {written} of {nbytes} bytes"
        + (f" and reported: {lines[-1].strip()}" if lines and (errors.strip() or process.returncode) else ""),
        where=", ".join(map(str, volumes)),
        remedy="see the cluster's health, and the pool's free capacity and quota; the same command fills them "
        "again. If fio reports that it has no engine rbd, install a fio that was built with it (Debian's is)",
    )


def _written(text: str) -> int:
    begin = text.find("{")
    try:
        jobs = json.loads(text[begin:])["jobs"]
    except (ValueError, KeyError):
        return 0
    return sum(int(job["write"]["io_bytes"]) for job in jobs)


class VolumeClients:
    """Clients with RBD images, either as block devices of this machine or opened by fio directly.

    Args:
        target: its name, for messages.
        access: the clients' access to the cluster.
        folder: of the target; receives the clients' ceph.conf and the folder of their admin sockets.
        volumes: keeps notes on images.
        adapters: exports block devices, and restores their settings.
    """

    def __init__(
        self, target: str, *, access: ClientAccess, folder: Path, volumes: Volumes, adapters: ClusterAdapters
    ) -> None:
        self.conf = folder / "client.conf"
        self._target = target
        self._access = access
        self._folder = folder
        self._volumes = volumes
        self._around = adapters
        self._sockets = socket_folder(folder)
        self.attached: tuple[Client, ...] = ()
        self._volume_of: dict[str, Volume] = {}

    @property
    def client_id(self) -> str:
        """The clients' name for the cluster, without ``client.``."""
        return self._access.client_id

    def write_conf(self, configuration: Configuration, admin: CephAdmin) -> None:
        """Write the ceph.conf with a configuration's options for clients, and create their socket folder."""
        make_socket_folder(self._folder)
        text = render_client_conf(configuration, admin, access=self._access, socket_folder=self._sockets)
        write_client_conf(self.conf, text)

    def remove_conf(self) -> None:
        self.conf.unlink(missing_ok=True)
        remove_dead_sockets(self._sockets)
        remove_socket_folder(self._folder, self._sockets)

    def attach(self, volumes: Mapping[str, Volume]) -> None:
        """Give each client its volume.

        Args:
            volumes: by the client's name.

        Raises:
            HostError: this machine lacks something.
            ClusterError: an image cannot be opened.
        """
        clients = []
        for name, volume in volumes.items():
            if self._around.attaches is None:
                clients.append(Client(name, self._librbd_options(volume), volume.nbytes))
                continue
            device = self._around.attaches.attach(
                volume, conf=self.conf, client_id=self.client_id, folder=self._folder
            )
            clients.append(Client(name, {"filename": str(device)}, volume.nbytes, device))
        self.attached = tuple(clients)
        self._volume_of = dict(volumes)

    def detach(self) -> None:
        """Detach all volumes, including those of a killed process, and of an earlier command."""
        self._around.greater.release(self.attached)
        self.attached, self._volume_of = (), {}
        if self._around.devices is not None:
            self._around.devices.detach_all(self._folder)

    def read_back(
        self, configuration: Configuration, catalogue: Catalogue
    ) -> tuple[dict[str, dict[str, Any]], list[str]]:
        """Return setting as text to client to value, and one sentence per setting that did not take effect."""
        if self._around.attaches is None:  # the images are not open between the runs of fio
            return read_back_new_client(configuration, catalogue, self.conf, self.client_id)
        return read_back_clients(configuration, catalogue, self._sockets)

    def drop_caches(self) -> None:
        """Flush and drop the caches of kernel and librbd for the volumes, in order from client to disk.

        Raises:
            HostError: as ``require_served``.
        """
        self.require_served()
        for client in self.attached:
            if client.device is not None:
                _drop_page_cache(client.device)
        drop_client_caches(self._sockets)

    def require_served(self) -> None:
        """Check that every client's device is still its volume.

        A device whose program has died may become the device of another image.

        Raises:
            HostError: the program of a device has died, or the volume is now on another device.
        """
        for client in self.attached:
            if client.device is None or self._around.devices is None:
                continue
            now = self._around.devices.device_of(self._volume_of[client.name], folder=self._folder)
            if now != client.device:
                raise HostError(
                    f"the program behind {client.device} of client {client.name} has died"
                    if now is None
                    else f"the volume of client {client.name} is now {now}, no longer {client.device}",
                    where=self._target,
                    remedy="run the same command again: it attaches the volume again and continues",
                )

    def note_on(self, client: Client, key: str) -> str | None:
        """Return a note that is kept with the client's volume for the volume's lifetime."""
        return self._volumes.note_on(self._volume_of[client.name], f"cephfit.{key}")

    def set_note(self, client: Client, key: str, text: str | None) -> None:
        self._volumes.set_note(self._volume_of[client.name], f"cephfit.{key}", text)

    def _librbd_options(self, volume: Volume) -> dict[str, str]:
        image = {"pool": volume.pool, "rbdname": volume.image, "clientname": self.client_id}
        return {"ioengine": "rbd", **image, "conf": str(self.conf)}


def _drop_page_cache(device: Path) -> None:
    descriptor = os.open(device, os.O_RDONLY)
    try:
        flush_buffers(descriptor)
    finally:
        os.close(descriptor)
