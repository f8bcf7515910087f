"""Settings and configurations, the volume types of Cinder among them, and what they would change on a cluster.

The keys of QoS are those of Cinder (its administration guide, "Basic volume quality of service" and "Capacity
based quality of service"). Cinder itself accepts any key and any value, so that a mistyped limit has no effect and
gives no error.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.journal import Entry
from cephfit.core.protocols import Health
from cephfit.core.units import parse_nbytes

DEFAULT_CONFIGURATION = "A"
"""Name of the default configuration, with which all others are compared (the thesis's name)."""

Value = str | int | float | bool


class Partition(StrEnum):
    """The partition of a setting (Meyer 2017, section 2.4)."""

    POOL = "pool"
    """The functional component: size, pg_num, CRUSH rule, striping, compression."""
    CEPH = "ceph"
    """The Ceph environment: every daemon and client option."""
    GREATER = "greater"
    """The greater Ceph environment: OSD disks and their scheduler, object store, network, guest."""


def as_yaml(value: object) -> str:
    """Format a value as YAML and Ceph do: ``true``, not ``True``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """One key = value in one scope.

    Attributes:
        partition: what the setting belongs to.
        scope: pool: ``pool``, ``image`` or ``volume`` (of Cinder); ceph: the section (``global``, ``osd``,
            ``mon``, ``mgr``, ``client``, or a masked one such as ``osd/class:hdd``); greater: one of
            ``ceph/environment/scopes.py``.
        key: the option's name as Ceph or the kernel spells it.
        value: as written in the sweep file.
    """

    partition: Partition
    scope: str
    key: str
    value: Value

    def __str__(self) -> str:
        return f"{self.partition}/{self.scope}/{self.key} = {self.value}"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A named set of settings; the one without settings is the default.

    Attributes:
        name: short, as reports show it.
        settings: sorted, no two of the same partition, scope and key.
        why: one sentence for readers of the report; may be empty.
    """

    name: str
    settings: tuple[Setting, ...] = ()
    why: str = ""

    def __post_init__(self) -> None:
        places = [(s.partition, s.scope, s.key) for s in self.settings]
        if len(set(places)) != len(places):
            raise ValueError(f"configuration {self.name!r} sets a key twice")

    def within(self, partition: Partition) -> Iterator[Setting]:
        """Return the settings of one partition."""
        return (s for s in self.settings if s.partition is partition)


SCOPE = "volume"

TYPE = "type"
QOS = "qos"
CONSUMER = "consumer"
"""Key of QoS: where it is enforced. In the hypervisor (``front-end``), the storage, or both."""
CONSUMERS = ("front-end", "back-end", "both")

_UNITS = ("iops_sec", "bytes_sec")
_SIDES = ("total", "read", "write")
_LIMITS = tuple(f"{side}_{unit}" for unit in _UNITS for side in _SIDES)
_MAX, _PER_GB, _PER_GB_MIN = "_max", "_per_gb", "_per_gb_min"
_SIZE = "size_iops_sec"

QOS_KEYS: tuple[str, ...] = (
    CONSUMER,
    *(limit + form for form in ("", _MAX, _PER_GB, _PER_GB_MIN) for limit in _LIMITS),
    _SIZE,
)
"""Keys under ``qos``."""

VOLUME_KEYS: tuple[str, ...] = (TYPE, *(f"{QOS}.{key}" for key in QOS_KEYS))
"""Keys of settings in the scope ``volume``; in a file, ``qos`` is a mapping of further keys."""


def spec_value(key: str, value: Value) -> str:
    """Convert a QoS value to the form that Cinder expects: sizes in bytes, all others unchanged."""
    if key != CONSUMER and "bytes_sec" in key and not isinstance(value, bool):
        return str(parse_nbytes(str(value)))
    return str(value)


def fault_of_qos_value(key: str, value: Value) -> str:
    """Return why a key of QoS cannot have this value; empty if it can."""
    if key == CONSUMER:
        return "" if value in CONSUMERS else f"{key} is {value!r}, not one of {', '.join(CONSUMERS)}"
    required = "a size of 1 byte or more, such as 20M," if "bytes_sec" in key else "a whole number of 1 or more"
    try:
        number = int(spec_value(key, value)) if not isinstance(value, float | bool) else 0
    except (ValueError, InputError):
        number = 0
    return "" if number >= 1 else f"{key} is {value!r}: {required} is required"


def qos_declared(configuration: Configuration) -> dict[str, str]:
    """Return the QoS of a configuration: Cinder's keys and values in Cinder's form; empty if it declares none."""
    keys = {s.key: s.value for s in configuration.within(Partition.POOL) if s.scope == SCOPE}
    return {
        key: spec_value(key, value)
        for name, value in sorted(keys.items())
        if (key := name.removeprefix(f"{QOS}.")) != name
    }


def fault_of_qos(specs: Mapping[str, str]) -> str:
    """Return why keys of QoS cannot be combined; empty if they can. Each value is valid by itself.

    The hypervisor would refuse to start a server with such a volume, or Cinder would ignore one of the keys.
    """
    keys = [key for key in specs if key != CONSUMER]
    if not keys:
        return "no limit is given"
    return next(_faults(specs, keys), "")


def _faults(specs: Mapping[str, str], keys: list[str]) -> Iterator[str]:
    for unit in _UNITS:
        total = next((k for k in keys if k.startswith(f"total_{unit}")), "")
        other = next((k for k in keys if k.startswith((f"read_{unit}", f"write_{unit}"))), "")
        if total and other:
            yield f"{total} and {other} exclude each other: limit both kinds together or each separately"
    for limit in _LIMITS:
        fixed, most, scaled = specs.get(limit), specs.get(limit + _MAX), specs.get(limit + _PER_GB)
        if fixed and scaled:
            yield f"{limit} and {limit}{_PER_GB} exclude each other: the second would override the first"
        if specs.get(limit + _PER_GB_MIN) and not scaled:
            yield f"{limit}{_PER_GB_MIN} is the minimum of {limit}{_PER_GB}, which is missing"
        if most and not fixed and not scaled:
            yield f"{limit}{_MAX} is the burst beyond {limit}, which is missing"
        if most and fixed and int(most) < int(fixed):
            yield f"{limit}{_MAX} = {most} is less than {limit} = {fixed}"
    if _SIZE in specs and not any("iops_sec" in key for key in keys if key != _SIZE):
        yield f"{_SIZE} defines the size of one I/O, but no limit of I/Os is given"


HEALTHY = Health(ok=True)
"""Placeholder in a preview until the health has been queried."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting of one configuration in one place.

    Attributes:
        configuration: name.
        place: what the setting belongs to: ``osd (class hdd)``, ``clients``, ``pool cephfit-default`` ...
        key: the option.
        now: current value; several if the members of the place differ; empty if there is none yet.
        then: value that the sweep sets.
    """

    configuration: str
    place: str
    key: str
    now: str
    then: str


@dataclass(frozen=True, slots=True)
class PoolToCreate:
    """A pool that a sweep creates.

    Attributes:
        name: of the pool.
        values: its settings.
        configurations: with images in this pool; for a cache tier or a data pool, those of its base pool.
        n_pgs: placement groups.
        nbytes: total number of bytes written into it.
        raw_nbytes: the same on the disks, including all copies or chunks.
        pgs_per_osd: placement groups on each of its OSDs, including all copies or chunks; 0 if it holds no data of
            volumes, or its OSDs are unknown.
    """

    name: str
    values: Mapping[str, str]
    configurations: tuple[str, ...]
    n_pgs: int
    nbytes: int
    raw_nbytes: int
    pgs_per_osd: float = 0.0


@dataclass(frozen=True, slots=True)
class Preview:
    """All changes that a sweep would make.

    Attributes:
        health: current health; a cluster that is not healthy is refused.
        differences: every setting, with current and new value.
        restarts: configuration to OSDs that need a restart to apply its values.
        n_restarts: restarts of OSDs in the whole sweep and its undoing, in the order of the plan.
        restart_seconds: their assumed total duration.
        pools: that are created, and deleted at the end.
        moved_nbytes: data of other pools that would move, computed offline from the CRUSH map.
        notes: further remarks.
    """

    health: Health
    differences: tuple[Difference, ...]
    restarts: Mapping[str, tuple[int, ...]]
    n_restarts: int
    restart_seconds: float
    pools: tuple[PoolToCreate, ...]
    moved_nbytes: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "healthy": self.health.ok,
            "unhealthy_because": list(self.health.reasons),
            "differences": [asdict(d) for d in self.differences],
            "restarts": {name: list(osds) for name, osds in self.restarts.items()},
            "osd_restarts": self.n_restarts,
            "osd_restart_seconds": self.restart_seconds,
            "pools": [{**asdict(p), "values": dict(p.values)} for p in self.pools],
            "moved_nbytes": self.moved_nbytes,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class Undoing:
    """One change that ``reset`` would undo.

    Attributes:
        what: the changed object, as text.
        now: current value; empty if it is not queried.
        then: original value, which is restored.
    """

    what: str
    now: str
    then: str


_TOLD_BY_THE_CLUSTER = frozenset({"config", "restart", "pool", "image", "injected", "ceph.conf"})
_WORDS = 60


def other_undoings(entries: Sequence[Entry]) -> list[Undoing]:
    """Journal entries other than options, pools and images of the cluster, newest first, as they are undone."""
    found = []
    for entry in reversed(entries):
        if entry.kind not in _TOLD_BY_THE_CLUSTER:
            was = "not there" if entry.was is None else str(entry.was)
            found.append(Undoing(f"{entry.kind} {entry.place}", "", was if len(was) < _WORDS else "as it was"))
    return found


IMAGE_PROPERTY = "cinder_img_volume_type"
"""Image property that Cinder takes the type of a new volume from, unless the user names a type."""


SELECTORS = ("--property", "--tag")
"""Options of ``openstack image list`` that select images."""


@dataclass(frozen=True, slots=True)
class ImageRule:
    """Images with a property or a tag run a workload.

    Attributes:
        selection: arguments of ``openstack image list`` that select them.
        workload: name.
    """

    selection: tuple[str, str]
    workload: str


@dataclass(frozen=True, slots=True)
class ImageChange:
    """Sets the volume type of the images of a rule.

    Attributes:
        rule: selects the images.
        volume_type: of new volumes from them.
    """

    rule: ImageRule
    volume_type: str

    @property
    def command(self) -> str:
        return self._each(["set", "--property", f"{IMAGE_PROPERTY}={self.volume_type}"])

    @property
    def undo(self) -> str:
        return self._each(["unset", "--property", IMAGE_PROPERTY])

    def _each(self, change: Sequence[str]) -> str:
        selected = shlex.join(["openstack", "image", "list", *self.rule.selection, "-f", "value", "-c", "ID"])
        return f"{selected} | xargs -r -n 1 {shlex.join(['openstack', 'image', *change])}"

    def to_json(self) -> dict[str, Any]:
        return {
            "workload": self.rule.workload,
            "images": dict([self.rule.selection]),
            "volume_type": self.volume_type,
            "command": self.command,
            "undo": self.undo,
        }

    @classmethod
    def from_json(cls, document: Any) -> "ImageChange":
        """Read what ``to_json`` wrote.

        Raises:
            KeyError, TypeError, ValueError: it has another form.
        """
        ((option, text),) = document["images"].items()
        named = (text, document["workload"], document["volume_type"])
        if option not in SELECTORS or not all(isinstance(word, str) and word for word in named):
            raise ValueError(f"{option!r} is not one of {', '.join(SELECTORS)}, or a name is missing")
        return cls(ImageRule((option, text), str(document["workload"])), str(document["volume_type"]))
