"""The guests' Cinder volumes: their types, and whether they are filled."""

from collections.abc import Mapping, Sequence

from openstack.connection import Connection

from cephfit.errors import ClusterError, InputError
from cephfit.protocols import Client
from cephfit.sweep.cloud.connection import persistently, spoken
from cephfit.sweep.cloud.stacks import Node
from cephfit.sweep.fio_driver import speak
from cephfit.sweep.fio_output import UnusableOutputError, error_of, read_output
from cephfit.sweep.yaml_lines import nearest
from cephfit.units import GIB, MIB

FILLED = "cephfit_filled"
"""Metadata key of a volume: so many bytes from its start hold incompressible data."""

_SLOWEST_NBYTES_PER_S = MIB


def size_gib(volume_nbytes: int) -> int:
    """Cinder's sizes are whole GiB."""
    return max(1, -(-volume_nbytes // GIB))


def require_types(cloud: Connection, names: Sequence[str]) -> Mapping[str, str]:
    """Ids of volume types.

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


def unfilled(cloud: Connection, nodes: Sequence[Node], nbytes: int) -> list[Node]:
    """The nodes whose volume does not hold so much data yet."""
    found = []
    for node in nodes:
        volume = persistently(
            lambda node=node: cloud.block_storage.get_volume(node.volume),  # type: ignore[misc]
            where=f"volume {node.volume}",
        )
        if volume.status != "in-use":
            raise ClusterError(
                f"its status is {volume.status}, not in-use", where=f"volume {node.volume} of client {node.name}"
            )
        if int((volume.metadata or {}).get(FILLED, 0)) < nbytes:
            found.append(node)
    return found


def fill(cloud: Connection, nodes: Sequence[Node], clients: Sequence[Client], nbytes: int) -> None:
    """Write the first ``nbytes`` of the volumes once, side by side, by the guests' fio servers.

    Raises:
        ClusterError: a guest could not write everything.
    """
    jobs = {
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
    said = speak(clients, jobs, timeout_seconds=120 + nbytes * len(nodes) / _SLOWEST_NBYTES_PER_S)
    try:
        found = {
            str(job.get("jobname")): job for job in read_output(said.output, jobs="client_stats")["client_stats"]
        }
    except UnusableOutputError:
        found = {}
    for node, client in zip(nodes, clients, strict=True):
        job = found.get(client.name)
        written = int(job["write"]["io_bytes"]) if job is not None and not error_of(job) else 0
        if written < nbytes:
            raise ClusterError(
                f"only {written} of {nbytes} bytes could be written: {said.errors.strip().splitlines()[-1:]}",
                where=f"volume {node.volume} of client {node.name}",
            )
        with spoken(f"volume {node.volume}"):
            cloud.block_storage.set_volume_metadata(node.volume, **{FILLED: str(nbytes)})
