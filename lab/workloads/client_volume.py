"""The volume of a client as a workload on this machine needs it."""

from pathlib import Path

from cephfit.core.errors import InputError
from cephfit.core.protocols import Client
from cephfit.core.units import format_nbytes


def device_of(client: Client, *, what: str) -> Path:
    """Return the block device of a client's volume.

    Args:
        client: with the volume.
        what: the workload in words, such as ``a program``.

    Raises:
        InputError: the volume is no device of this machine.
    """
    if client.device is None:
        raise InputError(
            f"{what} needs a block device on this machine",
            where=f"client {client.name}",
            remedy="choose a target whose clients have devices here, such as the lab or ceph",
        )
    return client.device


def require_nbytes(client: Client, nbytes: int, *, name: str, remedy: str) -> None:
    """Check the size of a client's volume.

    Args:
        client: with the volume.
        nbytes: that the workload needs.
        name: of the workload.
        remedy: for the error, after "use a larger volume, or".

    Raises:
        InputError: the volume is smaller.
    """
    if client.nbytes < nbytes:
        raise InputError(
            f"{name} needs {format_nbytes(nbytes)}, the volume has {format_nbytes(client.nbytes)}",
            where=f"client {client.name}",
            remedy=f"use a larger volume, or {remedy}",
        )
