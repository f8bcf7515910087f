"""Placement of a pool's data by its declaration: devices, failure domain, separate primaries."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from cephfit.core.errors import InputError

_PLACING = ("devices.", "primary.", "failure_domain")
DEVICE_WORDS = ("class", "hosts", "osds", "root")
"""Keys of ``devices:`` and ``primary:`` in a declaration."""


@dataclass(frozen=True, slots=True)
class Devices:
    """A selection of OSDs; an empty attribute does not restrict it.

    Attributes:
        root: bucket under which they are; empty for the map's default root.
        device_class: such as ``ssd``.
        hosts: buckets (hosts, racks ...) that they are in.
        osds: ids.
    """

    root: str = ""
    device_class: str = ""
    hosts: tuple[str, ...] = ()
    osds: tuple[int, ...] = ()

    def __str__(self) -> str:
        parts = [f"class {self.device_class}"] if self.device_class else []
        parts += [f"hosts {', '.join(self.hosts)}"] if self.hosts else []
        parts += [f"OSDs {', '.join(map(str, self.osds))}"] if self.osds else []
        parts += [f"under {self.root}"] if self.root else []
        return " ".join(parts) or "all devices"


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement of the copies or chunks of a pool's objects.

    Attributes:
        devices: of all copies, or of the replicas only where ``primary`` is set.
        primary: devices of each PG's first OSD; None for the same as the others.
        failure_domain: bucket type; no two copies share a bucket of it. ``osd`` requires different OSDs only.
        erasure: whether it is for an erasure-coded pool.
        classes: class to OSDs, for clusters before Luminous, which have no device classes.
    """

    devices: Devices = field(default_factory=Devices)
    primary: Devices | None = None
    failure_domain: str = "host"
    erasure: bool = False
    classes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Ten hex digits; the same for all pools with the same placement."""
        kind = "erasure" if self.erasure else "replicated"
        text = f"{kind}/{self.failure_domain}/{self.devices}/{self.primary}/{sorted(self.classes.items())}"
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def __str__(self) -> str:
        apart = f", primaries on {self.primary}" if self.primary is not None else ""
        return f"{self.devices}{apart}, apart by {self.failure_domain}"


def placement_of(settings: Mapping[str, str], *, erasure: bool = False, where: str = "") -> Placement | None:
    """Return the placement that pool settings declare; None without one (the pool uses an existing rule).

    Args:
        settings: key to value as Ceph writes it: ``devices.class``, ``devices.hosts`` (comma-separated),
            ``devices.osds``, ``devices.root``, the same of ``primary``, ``failure_domain``, ``classes.NAME``.
        erasure: whether for an erasure-coded pool, which gets a separate rule unless it names one.
        where: for messages.

    Raises:
        InputError: they contradict each other.
    """
    placing = {k: v for k, v in settings.items() if k.startswith(_PLACING)}
    rule = settings.get("crush_rule")
    if rule is not None and placing:
        raise InputError(
            f"crush_rule {rule} and {', '.join(sorted(placing))} both define the pool's placement",
            where=where,
            remedy="remove one of them",
        )
    if rule is not None or (not placing and not erasure):
        return None
    primary = _devices(settings, "primary", where)
    if primary is not None and erasure:
        raise InputError("an erasure-coded pool has no separate primaries", where=where, remedy="remove `primary`")
    return Placement(
        devices=_devices(settings, "devices", where) or Devices(),
        primary=primary,
        failure_domain=settings.get("failure_domain", "host"),
        erasure=erasure,
        classes={
            k.removeprefix("classes."): _ids(v, where) for k, v in settings.items() if k.startswith("classes.")
        },
    )


def _devices(settings: Mapping[str, str], word: str, where: str) -> Devices | None:
    given = {key: settings[f"{word}.{key}"] for key in DEVICE_WORDS if f"{word}.{key}" in settings}
    if not given:
        return None
    if "osds" in given and {"hosts", "root"} & set(given):
        raise InputError(f"{word}: `osds` already selects the OSDs", where=where, remedy="remove hosts and root")
    if "hosts" in given and "root" in given:
        raise InputError(f"{word}: hosts are given, so `root` has no effect", where=where, remedy="remove it")
    return Devices(
        root=given.get("root", ""),
        device_class=given.get("class", ""),
        hosts=tuple(filter(None, given.get("hosts", "").split(","))),
        osds=_ids(given.get("osds", ""), where),
    )


def _ids(text: str, where: str) -> tuple[int, ...]:
    words = [w.strip().removeprefix("osd.") for w in text.split(",") if w.strip()]
    wrong = [w for w in words if not w.isdigit()]
    if wrong:
        raise InputError(
            f"{wrong[0]!r} is not an OSD", where=where, remedy="write ids, such as [0, 3] or [osd.0, osd.3]"
        )
    return tuple(sorted({int(w) for w in words}))
