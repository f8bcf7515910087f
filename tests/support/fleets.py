"""Fleets of images with known classes, and what ceph-mgr would say about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cephfit.core.values.image_io import FleetLoad, ImageLoad, ImageName, IoCounts


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of image: its mean rate, share of reads and mean sizes."""

    n: int
    per_second: float
    read_share: float
    read_nbytes: float
    write_nbytes: float


DATABASES = Kind(12, 400.0, 0.7, 8192, 8192)
BACKUPS = Kind(5, 20.0, 0.0, 4096, 1 << 20)
WEB = Kind(15, 12.0, 0.9, 32768, 16384)
LOGS = Kind(5, 90.0, 0.02, 16384, 4096)
KINDS = {"database": DATABASES, "backup": BACKUPS, "web": WEB, "log": LOGS}


def fleet(
    kinds: Mapping[str, Kind] = KINDS, *, seconds: float = 600.0, seed: int = 1, spread: float = 0.15
) -> FleetLoad:
    """Return the load of images ``KIND-NUMBER``, whose rates and sizes scatter log-normally."""
    random = np.random.default_rng(seed)
    images = []
    for word, kind in kinds.items():
        for i in range(kind.n):
            rate, read, write = (
                float(mean * random.lognormal(0, s))
                for mean, s in (
                    (kind.per_second, 2 * spread),
                    (kind.read_nbytes, spread),
                    (kind.write_nbytes, spread),
                )
            )
            share = float(np.clip(kind.read_share + random.normal(0, 0.02), 0, 1)) if kind.read_share else 0.0
            reads, writes = rate * seconds * share, rate * seconds * (1 - share)
            counts = IoCounts(reads, writes, reads * read, writes * write, reads * 5e5, writes * 2e6)
            images.append(ImageLoad(ImageName("vms", "", f"{word}-{i}"), counts, (counts.operations,)))
    return FleetLoad("a fleet", (seconds,), tuple(sorted(images, key=lambda image: image.name)))


def scrape(images: Mapping[ImageName, IoCounts], *, others: Sequence[str] = (), time_ms: int | None = None) -> str:
    """Return what ceph-mgr's module prometheus serves for counters of images."""
    metrics = {
        "ceph_rbd_write_ops": lambda c: c.writes,
        "ceph_rbd_read_ops": lambda c: c.reads,
        "ceph_rbd_write_bytes": lambda c: c.written_nbytes,
        "ceph_rbd_read_bytes": lambda c: c.read_nbytes,
        "ceph_rbd_write_latency_sum": lambda c: c.write_latency_ns,
        "ceph_rbd_write_latency_count": lambda c: c.writes,
        "ceph_rbd_read_latency_sum": lambda c: c.read_latency_ns,
        "ceph_rbd_read_latency_count": lambda c: c.reads,
    }
    lines = ["", "# HELP ceph_health_status Cluster health status", "# TYPE ceph_health_status untyped"]
    lines += ["ceph_health_status 0.0", *others]
    when = "" if time_ms is None else f" {time_ms}"
    for metric, value in metrics.items():
        lines += [f"# HELP {metric} RBD image", f"# TYPE {metric} counter"]
        for name, counts in images.items():
            labels = f'pool="{name.pool}",namespace="{name.namespace}",image="{name.image}"'
            lines.append(f"{metric}{{{labels}}} {float(value(counts))!r}{when}")
    return "\n".join(lines) + "\n"
