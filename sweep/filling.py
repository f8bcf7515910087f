"""Filling RBD images with incompressible data, so that reads find objects and compression finds nothing."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cephfit.errors import ClusterError
from cephfit.measurement import RBD_OBJECT_NBYTES
from cephfit.sweep.child_process import end, find_program, start
from cephfit.sweep.engines.engine import SLOWEST_NBYTES_PER_S
from cephfit.sweep.volumes import Volume


def fill(volumes: Sequence[Volume], *, conf: Path, client_id: str = "admin") -> None:
    """Write every byte of the images once, through librbd, all images side by side.

    Args:
        volumes: their sizes are multiples of 4 MiB.
        conf: ceph.conf of the client.
        client_id: such as ``admin``.

    Raises:
        HostError: there is no fio.
        ClusterError: fio could not write everything.
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
    wanted = sum(v.nbytes for v in volumes)
    seconds = 60 + wanted / SLOWEST_NBYTES_PER_S
    # fio's rbd engine takes no path of a configuration file; librados reads this variable.
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
    if process.returncode == 0 and written >= wanted:
        return
    said = [line for line in (errors.strip() or output.strip()).splitlines() if line.strip("{} ")]
    raise ClusterError(
        f"fio could not fill the volumes: it wrote {written} of {wanted} bytes"
        + (f" and said: {said[-1].strip()}" if said and (errors.strip() or process.returncode) else ""),
        where=", ".join(map(str, volumes)),
        remedy="see the cluster's health and the pool's room and quota; the same command fills them again. If fio "
        "says that it has no engine rbd, install one that was built with it (Debian's is)",
    )


def _written(text: str) -> int:
    begin = text.find("{")
    try:
        jobs = json.loads(text[begin:])["jobs"]
    except (ValueError, KeyError):
        return 0
    return sum(int(job["write"]["io_bytes"]) for job in jobs)
