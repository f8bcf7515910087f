"""Placement of a pool's data: declared (devices, failure domain, separate primaries), or by the pool's CRUSH rule.

A target records the device classes of rules, and the cluster's defaults for pools, in the facts of a run. So the
price of the default pool is known afterwards.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.core.errors import InputError
from cephfit.core.protocols import CephAdmin

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


LAYOUT = "layout"
"""Key of the facts of a run."""
_REPLICATED = 1


@dataclass(frozen=True, slots=True)
class RuleLayout:
    """The layout of pools without a declared placement.

    Attributes:
        default_rule: CRUSH rule of a pool that names none; empty if unknown.
        default_copies: of a replicated pool that does not set ``size``; None if unknown.
        classes: CRUSH rule to the device class of all copies, or to those of the first copy and of the others.
            Rules without a certain class are omitted.
    """

    default_rule: str = ""
    default_copies: int | None = None
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "default_rule": self.default_rule,
            "default_copies": self.default_copies,
            "classes": {rule: list(classes) for rule, classes in self.classes.items()},
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "RuleLayout":
        """Return the layout in the facts of a run; an empty one for runs of earlier versions and other targets."""
        found = facts.get(LAYOUT)
        if not isinstance(found, Mapping):
            return cls()
        copies, classes = found.get("default_copies"), found.get("classes") or {}
        return cls(
            str(found.get("default_rule") or ""),
            int(copies) if copies else None,
            {str(rule): tuple(map(str, its)) for rule, its in classes.items()},
        )

    def shares(self, rule: str, copies: int | None) -> dict[str, float] | None:
        """Return the bytes on disks by device class per byte of data; None if they are not certain.

        Args:
            rule: CRUSH rule; empty for the default.
            copies: of each object; None for the default.
        """
        classes, n = self.classes.get(rule or self.default_rule, ()), copies or self.default_copies
        if not classes or not n:
            return None
        shares = {classes[0]: 1.0 if len(classes) > 1 else float(n)}
        if len(classes) > 1:
            shares[classes[1]] = shares.get(classes[1], 0.0) + n - 1
        return shares


def no_such_pool(pool: str) -> InputError:
    """Return the error for ``--only-pool`` with a pool that the cluster does not have."""
    return InputError(
        f"this cluster has no pool {pool}",
        where="--only-pool",
        remedy=f"create it: ceph osd pool create {pool}; rbd pool init {pool}",
    )


def read_layout(admin: CephAdmin, pool_defaults: Mapping[str, Any], only_pool: str = "") -> RuleLayout:
    """Read the layout of a cluster.

    Args:
        admin: of the cluster.
        pool_defaults: settings of pools where a configuration does not set them.
        only_pool: the pool that all configurations use; empty if each has its own.

    Raises:
        InputError: the cluster has no pool ``only_pool``.
    """
    try:
        rules: Sequence[Mapping[str, Any]] = admin.command("osd crush rule dump")
        nodes = admin.command("osd tree")["nodes"]
        default_rule, copies = str(pool_defaults.get("crush_rule", "")), pool_defaults.get("size")
        if only_pool:
            pool = next((p for p in admin.command("osd dump")["pools"] if p["pool_name"] == only_pool), None)
            if pool is None:
                raise no_such_pool(only_pool)
            default_rule = next((r["rule_name"] for r in rules if r["rule_id"] == pool["crush_rule"]), "")
            copies = None if pool.get("erasure_code_profile") else pool["size"]
        elif copies is None:
            copies = _default_copies(admin)
    except RefusedError:  # an early release, or a key with few capabilities
        return RuleLayout()
    if not default_rule and not only_pool:
        replicated = [r for r in rules if r["type"] == _REPLICATED]
        default_rule = min(replicated, key=lambda r: int(r["rule_id"]))["rule_name"] if replicated else ""
    every = {str(node.get("device_class", "")) for node in nodes if node["type"] == "osd"}
    classes = {r["rule_name"]: its for r in rules if (its := _classes(r["steps"], every))}
    return RuleLayout(default_rule, int(copies) if copies else None, classes)


def _default_copies(admin: CephAdmin) -> int | None:
    monitor = admin.command("mon dump")["mons"][0]["name"]
    shown = admin.command("config show", who=f"mon.{monitor}")
    return next((int(e["value"]) for e in shown if e["name"] == "osd_pool_default_size"), None)


def _classes(steps: Sequence[Mapping[str, Any]], every: set[str]) -> tuple[str, ...]:
    """Return the device classes that a rule takes; empty if they are not certain.

    Args:
        steps: of the rule, as ``osd crush rule dump`` has them.
        every: classes of all OSDs.
    """
    taken = [str(step["item_name"]).partition("~")[2] for step in steps if step["op"] == "take"]
    only = next(iter(every)) if len(every) == 1 else ""
    classes = tuple(one or only for one in taken)
    if not classes or not all(classes) or len(classes) > 2:
        return ()
    if len(classes) == 2:
        chosen = [int(step.get("num", 0)) for step in steps if str(step["op"]).startswith("choose")]
        return classes if chosen[:1] == [1] else ()
    return classes
