"""One option of Ceph: the comparison of its values, and the values that risk data.

Values are compared the way Ceph reads them: 512K and 524288 are the same size.

A sweep file with a setting that risks data or leaves a cluster in an unwanted state is refused unless
``accept_risk`` lists its key: acceptable on a private lab, not on a cluster with other people's data.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any

from cephfit.ceph.environment.scopes import CLIENT_NETWORK
from cephfit.core.values.configuration import Partition, Setting, Value

_RECOVERY = re.compile(r"recover|backfill|scrub|snap_trim|rebalanc|osd_repair|osd_mclock|osd_max_pg_per_osd")


@dataclass(frozen=True, slots=True)
class Option:
    """One option as ``config help`` describes it.

    Attributes:
        name: Ceph's spelling.
        type: ``int``, ``uint``, ``size``, ``float``, ``bool``, ``str``, ``secs`` ...
        default: from Ceph; that of the daemons where it differs.
        flags: ``runtime``, ``startup``, ``create`` ...
        services: readers, as far as Ceph lists them.
        can_update_at_runtime: whether the value of a running daemon changes at all.
        level: ``basic``, ``advanced`` or ``dev``: the audience that Ceph's developers intended.
        description: one line; may be empty.
        more: the long description; may be empty.
        least: smallest value; empty where Ceph lists none.
        most: largest value; empty where Ceph lists none.
        choices: permitted words; empty for other kinds of values.
        see_also: names of related options.
    """

    name: str
    type: str
    default: Any
    flags: tuple[str, ...]
    services: tuple[str, ...]
    can_update_at_runtime: bool
    level: str = "advanced"
    description: str = ""
    more: str = ""
    least: str = ""
    most: str = ""
    choices: tuple[str, ...] = field(default=())
    see_also: tuple[str, ...] = field(default=())

    @classmethod
    def from_help(cls, reported: Mapping[str, Any]) -> "Option":
        """Build from the answer to ``config help``; older releases omit some of its keys."""
        daemon_default = reported.get("daemon_default")
        return cls(
            name=reported["name"],
            type=reported["type"],
            default=reported["default"] if daemon_default in (None, "") else daemon_default,
            flags=tuple(reported.get("flags", ())),
            services=tuple(reported.get("services", ())),
            can_update_at_runtime=bool(reported.get("can_update_at_runtime", False)),
            level=reported.get("level", "advanced"),
            description=reported.get("desc", "").strip(),
            more=" ".join(reported.get("long_desc", "").split()),
            least=str(reported.get("min", "")),
            most=str(reported.get("max", "")),
            choices=tuple(reported.get("enum_values", ())),
            see_also=tuple(reported.get("see_also", ())),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Option":
        """Return the inverse of ``to_json``."""
        lists = ("flags", "services", "choices", "see_also")
        fields: dict[str, Any] = {key: tuple(value) if key in lists else value for key, value in document.items()}
        return cls(**fields)

    @property
    def acts_at_runtime(self) -> bool:
        """Whether a running daemon acts on a change.

        ``can_update_at_runtime`` is true for every number and every bool: the value changes, but code that read
        it once at the start (``bluestore_cache_size``) keeps the old one. Only options flagged ``runtime`` are
        watched or read again. The others need a restart, although a read-back looks right without one.
        """
        return "runtime" in self.flags

    @property
    def acts_at_creation_only(self) -> bool:
        """Whether only a new OSD or cluster reads it (``bluestore_min_alloc_size``)."""
        return "create" in self.flags or "cluster_create" in self.flags

    @property
    def takes_effect(self) -> str:
        """When a change takes effect: ``at once``, ``restart`` or ``creation``."""
        if self.acts_at_creation_only:
            return "creation"
        return "at once" if self.acts_at_runtime else "restart"

    @property
    def affects_recovery(self) -> bool:
        """Whether it concerns recovery, backfill, scrubbing or trimming: work in addition to client I/O."""
        return bool(_RECOVERY.search(self.name))


_IEC = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}
_SI = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_SECONDS = {
    "s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hr": 3600, "hour": 3600, "hours": 3600, "d": 86400, "day": 86400, "days": 86400,
}  # fmt: skip


def as_ceph_writes(value: Value) -> str:
    """Return a sweep file's value in the syntax of a Ceph command."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def same_value(option_type: str, required: Value, found: Value) -> bool:
    """Return whether two spellings are one value of ``option_type`` (a type name of ``config help``).

    A text that is not a value of the type equals only itself. Where the type is unknown (empty), two spellings of
    one number are the same.
    """
    if not option_type:
        return any(same_value(known, required, found) for known in ("bool", "size", "float", "str"))
    left, right = as_ceph_writes(required), as_ceph_writes(found)
    if _is_level(left) or _is_level(right):
        # Debug levels (`debug_osd`) are strings in Ceph; 20 and 20/20 are the same level.
        return _log_levels(left) == _log_levels(right)
    a, b = _canonical(option_type, left), _canonical(option_type, right)
    if isinstance(a, Fraction) and isinstance(b, Fraction) and option_type == "float":
        # Daemons print six decimals.
        return abs(a - b) <= Fraction(1, 10**6) * max(abs(a), abs(b), Fraction(1))
    return a == b


_KINDS = {
    "bool": "true or false",
    "size": "a size, such as 512K",
    "int": "a whole number",
    "uint": "a whole number from 0 up",
    "float": "a number",
    "secs": "a duration, such as 30 or 5m",
    "millisecs": "a number of milliseconds",
}


def fault_of(value: Value, option: Option) -> str:
    """Return why an option cannot have a value, by its description; empty if it can."""
    text = as_ceph_writes(value)
    if option.choices and text not in option.choices:
        return f"must be one of {', '.join(option.choices)}"
    if option.type not in _KINDS:
        return ""
    number = _canonical(option.type, text)
    whole = option.type in ("int", "uint", "size")
    if isinstance(number, str) or (whole and isinstance(number, Fraction) and number.denominator != 1):
        return f"must be {_KINDS[option.type]}"
    if isinstance(number, Fraction):
        if option.type in ("uint", "size") and number < 0:
            return f"must be {_KINDS['uint']}"
        return _beyond_limits(number, option)
    return ""


def _beyond_limits(number: Fraction, option: Option) -> str:
    """Return the limit that a number breaks; limits that the option's default breaks are errors in Ceph."""
    default = _canonical(option.type, str(option.default))
    for limit, sign, word in ((option.least, -1, "least"), (option.most, 1, "most")):
        bound = _canonical(option.type, limit) if limit else ""
        if not isinstance(bound, Fraction) or (number - bound) * sign <= 0:
            continue
        if not isinstance(default, Fraction) or (default - bound) * sign <= 0:
            return f"must be at {word} {limit}"
    return ""


def _canonical(option_type: str, text: str) -> Fraction | bool | str:
    text = text.strip()
    try:
        if option_type == "bool":
            return {"true": True, "yes": True, "on": True, "1": True}.get(
                text.lower(), False if text.lower() in ("false", "no", "off", "0") else text
            )
        if option_type == "size":
            return _number(text.removesuffix("iB").removesuffix("i"), _IEC)
        if option_type in ("int", "uint"):
            return _number(text, _SI)
        if option_type == "float":
            return Fraction(text)
        if option_type in ("secs", "millisecs"):
            return _duration(text)
    except (ValueError, ZeroDivisionError):
        return text
    return text


def _number(text: str, factors: dict[str, int]) -> Fraction:
    if text and text[-1].isalpha():
        return Fraction(text[:-1]) * factors.get(text[-1].upper(), 0) or _refuse(text)
    return Fraction(text)


def _refuse(text: str) -> Fraction:
    raise ValueError(text)


def _duration(text: str) -> Fraction:
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(number) :].strip() or "s"
    if unit not in _SECONDS:
        raise ValueError(text)
    return Fraction(number) * _SECONDS[unit]


def _is_level(text: str) -> bool:
    first, slash, second = text.partition("/")
    return bool(slash) and first.isdigit() and second.isdigit()


def _log_levels(text: str) -> str:
    first, slash, second = text.partition("/")
    return f"{first}/{second}" if slash else f"{first}/{first}"


def _below(limit: float, value: Value) -> bool:
    try:
        return float(value) < limit
    except ValueError:
        return False


def _is_false(value: Value) -> bool:
    return str(value).lower() in ("false", "0", "no", "off")


def _is_none(value: Value) -> bool:
    return str(value).lower() == "none"


@dataclass(frozen=True, slots=True)
class Risk:
    """One kind of setting that risks data.

    Attributes:
        partition: of the setting.
        key: a shell pattern over the key.
        when: dangerous values: ``always``, ``below 2``, ``is readonly``, ``false`` or ``none``.
        why: one sentence for users.
    """

    partition: Partition
    key: str
    when: str
    why: str

    def concerns(self, partition: Partition, key: str) -> bool:
        """Return whether some value of a key has this risk."""
        return partition is self.partition and fnmatchcase(key, self.key)

    def applies(self, setting: Setting) -> bool:
        """Return whether a setting with its value has this risk."""
        if not self.concerns(setting.partition, setting.key):
            return False
        if self.when.startswith("below "):
            return _below(float(self.when.removeprefix("below ")), setting.value)
        if self.when.startswith("is "):
            return str(setting.value) == self.when.removeprefix("is ")
        if self.when == "false":
            return _is_false(setting.value)
        if self.when == "none":
            return _is_none(setting.value)
        return True


def _always(partition: Partition, why: str, *keys: str) -> tuple[Risk, ...]:
    return tuple(Risk(partition, key, "always", why) for key in keys)


RISKS: tuple[Risk, ...] = (
    Risk(Partition.POOL, "size", "below 3", "fewer than three copies: two lost disks, or one, lose data"),
    Risk(Partition.POOL, "min_size", "below 2", "writes are acknowledged with one copy only"),
    Risk(Partition.POOL, "*.size", "below 3", "fewer than three copies: two lost disks, or one, lose data"),
    Risk(Partition.POOL, "*.min_size", "below 2", "writes are acknowledged with one copy only"),
    Risk(Partition.POOL, "erasure.m", "below 2", "one lost disk and one bad sector elsewhere lose data"),
    Risk(
        Partition.POOL,
        "cache.mode",
        "is readonly",
        'Ceph: "may corrupt your data"; stale copies are read',
    ),
    Risk(Partition.CEPH, "osd_pool_default_size", "below 3", "new pools get fewer than three copies"),
    Risk(
        Partition.CEPH, "osd_pool_default_min_size", "below 2", "new pools acknowledge writes with one copy only"
    ),
    Risk(Partition.CEPH, "bluestore_csum_type", "none", "corrupt data on a disk is served without an error"),
    Risk(Partition.CEPH, "bdev_*unsafe*", "always", "the name says it"),
    Risk(Partition.CEPH, "*debug_inject*", "always", "makes daemons delay or fail on purpose"),
    Risk(Partition.CEPH, "ms_inject*", "always", "makes connections fail on purpose"),
    Risk(Partition.CEPH, "*_debug_*", "always", "a developers' switch that may break a daemon"),
    Risk(Partition.CEPH, "bluestore_rocksdb_options*", "always", "may turn off the write-ahead log's syncing"),
    Risk(
        Partition.CEPH, "rbd_cache_writethrough_until_flush", "false", "a guest that never flushes may lose writes"
    ),
    Risk(Partition.CEPH, "journal_ignore_corruption", "always", "a broken journal is replayed"),
    Risk(Partition.CEPH, "auth_*_required", "none", "the cluster no longer authenticates its clients"),
    Risk(
        Partition.CEPH,
        "osd_heartbeat_grace",
        "below 20",
        "OSDs that are only busy are marked down, and data moves",
    ),
    *_always(
        Partition.CEPH,
        "running OSDs are marked down, or dead ones stay up",
        "osd_heartbeat_interval",
        "osd_heartbeat_min_*",
        "osd_mon_heartbeat_*",
        "osd_mon_report_*",
        "mon_osd_report_timeout",
        "mon_osd_min_down_*",
        "mon_osd_reporter_subtree_level",
        "mon_osd_adjust_heartbeat_grace",
        "*_suicide_timeout",
    ),
    *_always(
        Partition.CEPH,
        "decides when the data of OSDs that are down is moved, or whether it is",
        "mon_osd_down_out_*",
        "mon_osd_adjust_down_out_interval",
        "mon_osd_auto_mark_*",
        "mon_osd_min_in_ratio",
        "mon_osd_min_up_ratio",
    ),
    *_always(
        Partition.CEPH,
        "an OSD that is completely full does not start again",
        "osd_failsafe_*",
        "osd_backfill_full_ratio",
        "mon_osd_full_ratio",
        "mon_osd_backfillfull_ratio",
        "mon_osd_nearfull_ratio",
    ),
    Risk(Partition.CEPH, "osd_max_object_size", "always", "objects already larger become unreadable"),
    *_always(
        Partition.GREATER,
        "affects all traffic of the OSDs' hosts, not only Ceph's",
        "delay_ms",
        "jitter_ms",
        "loss_pct",
        "rate_mbit",
    ),
    Risk(Partition.GREATER, "mtu", "always", "a network that does not carry frames of this size stalls the OSDs"),
    Risk(Partition.GREATER, "kernel[./]*", "always", "affects the whole host, not only its storage"),
    Risk(Partition.GREATER, "vm[./]panic_*", "always", "stops the whole host where it would continue"),
    Risk(Partition.GREATER, "vm[./]overcommit_*", "always", "daemons may get no memory, or be killed for it"),
    Risk(Partition.CEPH, "mon_allow_pool_*", "always", "pools become easier to delete or to set unsafely"),
)
"""Known risks to data, in order of precedence. Source: Ceph's option descriptions and operations manual."""


def risk_of(setting: Setting) -> Risk | None:
    """Return the first declared risk of a setting, or None."""
    if setting.partition is Partition.GREATER and setting.scope == CLIENT_NETWORK:
        return None  # its keys are also those of the hosts' network, but no other program uses the clients' path
    return next((risk for risk in RISKS if risk.applies(setting)), None)
