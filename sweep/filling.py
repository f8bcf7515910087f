"""Filling RBD images with incompressible data, so that reads find objects and compression finds nothing."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cephfit.errors import ClusterError, HostError
from cephfit.sweep.volumes import Volume
from cephfit.units import MIB

_BLOCK_NBYTES = 4 * MIB
"""RBD's default object size: whole objects are written at once."""
_SLOWEST_NBYTES_PER_S = MIB
"""A fill slower than this is taken for stuck."""


def fill(volumes: Sequence[Volume], *, conf: Path, client_id: str = "admin") -> None:
    """Write every byte of the images once, through librbd, all images side by side.

    Raises:
        HostError: there is no fio, or it has no rbd engine.
        ClusterError: fio could not write everything.
    """
    program = shutil.which("fio")
    if program is None:
        raise HostError("there is no `fio` program", remedy="install the package fio")
    argv = [
        "setpriv", "--pdeathsig", "KILL", program, "--output-format=json", "--ioengine=rbd",
        f"--clientname={client_id}", "--rw=write", f"--bs={_BLOCK_NBYTES}", "--iodepth=4", "--direct=1",
        "--refill_buffers", "--buffer_compress_percentage=0", "--randrepeat=0", "--end_fsync=1",
        "--thread", "--group_reporting",
    ]  # fmt: skip
    for volume in volumes:
        argv += [f"--name={volume.image}", f"--pool={volume.pool}", f"--rbdname={volume.image}"]
        argv += [f"--size={volume.nbytes}"]
    seconds = 60 + sum(v.nbytes for v in volumes) / _SLOWEST_NBYTES_PER_S
    try:
        # fio's rbd engine takes no path of a configuration file; librados reads this variable.
        done = subprocess.run(
            argv, env={**os.environ, "CEPH_CONF": str(conf)}, capture_output=True, text=True, check=False,
            timeout=seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"filling {len(volumes)} volumes did not end within {seconds:.0f} s", remedy="see the cluster's health"
        ) from None
    if done.returncode != 0 or _written(done.stdout) < sum(v.nbytes for v in volumes):
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise ClusterError(
            f"fio could not fill the volumes: {said[-1] if said else 'it said nothing'}",
            where=", ".join(map(str, volumes)),
        )


def _written(text: str) -> int:
    start = text.find("{")
    try:
        jobs = json.loads(text[start:])["jobs"]
    except (ValueError, KeyError):
        return 0
    return sum(int(job["write"]["io_bytes"]) for job in jobs)
