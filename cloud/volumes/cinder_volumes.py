"""The guests' Cinder volumes: their types, and whether they are filled."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openstack.connection import Connection

from cephfit.cloud.cloud_connection import persistently
from cephfit.cloud.stacks import Node
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import Client
from cephfit.core.units import GIB
from cephfit.core.yaml_lines import nearest
from cephfit.measure.engine import SLOWEST_NBYTES_PER_S
from cephfit.measure.fio.fio_files import UnusableOutputError, error_of, read_output
from cephfit.measure.fio.fio_servers import drive_servers, with_fio_messages

FILLED = "cephfit_filled"
"""Metadata key of a volume: number of bytes from its start with incompressible data."""

WRITTEN_UNDER = "cephfit_filled_under"
"""Metadata key of a volume: the options of Ceph under which it was written, where a sweep sets any."""
_NO_OPTIONS = "-"

_NOTE = "cephfit_note_{}_{:02}"
"""Metadata key of a part of a volume's note: Cinder's values have 255 characters."""
_PART = 200

Moved = Callable[[Sequence[Client], Mapping[str, str], str, int], dict[str, int]]
"""Runs jobs, one per client, that each read or write a number of bytes; returns the bytes moved by client."""


def size_gib(volume_nbytes: int) -> int:
    """Return a volume's size in Cinder: whole GiB, rounded up."""
    return max(1, -(-volume_nbytes // GIB))


def require_types(cloud: Connection, names: Sequence[str]) -> Mapping[str, str]:
    """Return the ids of volume types.

    Raises:
        InputError: the cloud has no such type, or this project may not use it.
    """
    known = {t.name: t.id for t in persistently(lambda: list(cloud.block_storage.types()), where="volume types")}
    for name in names:
        if name not in known:
            raise InputError(
                f"the cloud has no volume type {name}, or this project may not use it",
                remedy=nearest(name, known),
            )
    return {name: known[name] for name in names}


def type_of(cloud: Connection, volume: str) -> str:
    """Return the name of a volume's type."""
    return str(_asked(cloud, volume).volume_type)


def unfilled(cloud: Connection, nodes: Sequence[Node], nbytes: int, *, under: str = "") -> list[Node]:
    """Return the nodes with a volume that lacks data, or has data written under other options of Ceph.

    Raises:
        ClusterError: a volume is not attached.
    """
    found = []
    for node in nodes:
        volume = _asked(cloud, node.volume)
        if volume.status != "in-use":
            raise ClusterError(
                f"its status is {volume.status}, not in-use", where=f"volume {node.volume} of client {node.name}"
            )
        notes = volume.metadata or {}
        if int(notes.get(FILLED, 0)) < nbytes or notes.get(WRITTEN_UNDER, _NO_OPTIONS) != (under or _NO_OPTIONS):
            found.append(node)
    return found


def unwritten(cloud: Connection, volume: str, nbytes: int) -> int:
    """Return how many of the first ``nbytes`` were never filled, under any options."""
    return max(0, nbytes - int((_asked(cloud, volume).metadata or {}).get(FILLED, 0)))


def fill(
    cloud: Connection,
    nodes: Sequence[Node],
    clients: Sequence[Client],
    nbytes: int,
    *,
    moved: Moved | None = None,
    under: str = "",
) -> None:
    """Write the first ``nbytes`` of the volumes once, concurrently.

    Args:
        cloud: connection.
        nodes: of the volumes.
        clients: of the same nodes.
        nbytes: of each volume.
        moved: runs the jobs and returns the bytes written; None for the guests' fio servers.
        under: key of the options of Ceph in place; empty for the cluster's own options.

    Raises:
        ClusterError: a guest could not write everything.
    """
    jobs = _filling_jobs(clients, nbytes)
    written = moved(clients, jobs, "write", nbytes) if moved is not None else _by_servers(clients, jobs, nbytes)
    for node, client in zip(nodes, clients, strict=True):
        if written[client.name] < nbytes:
            raise ClusterError(
                f"only {written[client.name]} of {nbytes} bytes could be written",
                where=f"volume {node.volume} of client {node.name}",
            )
        _write_metadata(cloud, node.volume, {FILLED: str(nbytes), WRITTEN_UNDER: under or _NO_OPTIONS})


def _filling_jobs(clients: Sequence[Client], nbytes: int) -> dict[str, str]:
    return {
        client.name: "\n".join(
            (
                f"[{client.name}]",
                "rw=write",
                "bs=1M",
                "ioengine=libaio",
                "iodepth=4",
                "direct=1",
                "refill_buffers=1",
                "buffer_compress_percentage=0",
                "randrepeat=0",
                "end_fsync=1",
                f"size={nbytes}",
                *(f"{key}={value}" for key, value in client.fio_options.items()),
                "",
            )
        )
        for client in clients
    }


def _by_servers(clients: Sequence[Client], jobs: Mapping[str, str], nbytes: int) -> dict[str, int]:
    output = drive_servers(clients, jobs, timeout_seconds=120 + nbytes * len(clients) / SLOWEST_NBYTES_PER_S)
    try:
        found = {
            str(job.get("jobname")): job for job in read_output(output.output, jobs="client_stats")["client_stats"]
        }
    except UnusableOutputError:
        found = {}
    written = {}
    for client in clients:
        job = found.get(client.name)
        if job is None or error_of(job):
            raise ClusterError(
                with_fio_messages("its volume could not be filled", output, ""), where=f"client {client.name}"
            )
        written[client.name] = int(job["write"]["io_bytes"])
    return written


def note_on(cloud: Connection, volume: str, key: str) -> str | None:
    """Return a volume's note; None if there is none."""
    metadata = _asked(cloud, volume).metadata or {}
    parts = sorted(name for name in metadata if name.startswith(_NOTE.format(key, 0)[:-2]))
    return "".join(str(metadata[name]) for name in parts) if parts else None


def set_note(cloud: Connection, volume: str, key: str, text: str | None) -> None:
    """Replace a volume's note, or remove it."""

    def remove() -> None:
        metadata = cloud.block_storage.get_volume(volume).metadata or {}
        if old := [name for name in metadata if name.startswith(_NOTE.format(key, 0)[:-2])]:
            cloud.block_storage.delete_volume_metadata(volume, keys=old)

    persistently(remove, where=f"volume {volume}")
    if text is not None:
        parts = [text[n : n + _PART] for n in range(0, len(text), _PART)]
        # One call, so that the note is complete or missing.
        _write_metadata(cloud, volume, {_NOTE.format(key, n): part for n, part in enumerate(parts)})


def _write_metadata(cloud: Connection, volume: str, values: Mapping[str, str]) -> None:
    persistently(lambda: cloud.block_storage.set_volume_metadata(volume, **values), where=f"volume {volume}")


def _asked(cloud: Connection, volume: str) -> Any:
    return persistently(lambda: cloud.block_storage.get_volume(volume), where=f"volume {volume}")
