"""The scopes of the partition ``greater``, their keys, OSD layouts, and options of storage protocols."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cephfit.ceph.admin.daemons import Daemon, rank, strongest
from cephfit.core.errors import InputError
from cephfit.core.units import parse_nbytes
from cephfit.core.values.configuration import Setting, Value, as_yaml

BLUESTORE = "bluestore"
FILESTORE = "filestore"
FILE_SYSTEMS = ("xfs", "btrfs", "ext4")
WITH_DATA = "data"
"""Placement of a journal, DB or WAL on the disk of the data."""

_PLACES = {FILESTORE: ("journal",), BLUESTORE: ("db", "wal")}
"""Parts that can be on another disk than the data, by object store."""
_FILESTORE_KEYS = ("filesystem", "mkfs_options", "mount_options", "journal")
STORE_KEYS = ("objectstore", *_FILESTORE_KEYS, "db", "wal")
"""Keys of the scope ``osd_store``."""

_FIRST_WITHOUT_FILESTORE = 18


@dataclass(frozen=True, slots=True)
class OsdStore:
    """The layout of an OSD's disk.

    Attributes:
        objectstore: ``bluestore`` or ``filestore``.
        filesystem: of FileStore: ``xfs``, ``btrfs`` or ``ext4``; empty for BlueStore.
        mkfs_options: further arguments of mkfs, separated by blanks.
        mount_options: for mount -o, instead of the default ones of the file system.
        journal: place of FileStore's journal: ``data`` (a file on the same file system) or a device class: a
            separate disk as fast as those of the class.
        db: the same for BlueStore's database.
        wal: the same for BlueStore's write-ahead log.
    """

    objectstore: str = BLUESTORE
    filesystem: str = ""
    mkfs_options: str = ""
    mount_options: str = ""
    journal: str = WITH_DATA
    db: str = WITH_DATA
    wal: str = WITH_DATA

    def __post_init__(self) -> None:
        if self.objectstore not in _PLACES:
            raise InputError(
                f"{self.objectstore!r} is not an object store", remedy="choose bluestore or filestore"
            )
        if self.objectstore == FILESTORE and self.filesystem not in FILE_SYSTEMS:
            raise InputError(
                f"FileStore does not support {self.filesystem or 'a disk without a file system'}",
                remedy=f"choose from: {', '.join(FILE_SYSTEMS)}",
            )
        for key in ("filesystem", "mkfs_options", "mount_options", "journal", "db", "wal"):
            concerns = FILESTORE if key in _FILESTORE_KEYS else BLUESTORE
            if concerns != self.objectstore and getattr(self, key) not in ("", WITH_DATA):
                raise InputError(f"{key} applies to {concerns}, but the object store is {self.objectstore}")

    def __str__(self) -> str:
        text = f"filestore on {self.filesystem}" if self.objectstore == FILESTORE else BLUESTORE
        text += "".join(f", {role} on {place}" for role, place in self.placed().items())
        return text + "".join(f", {text}" for text in (self.mkfs_options, self.mount_options) if text)

    def placed(self) -> dict[str, str]:
        """Parts on a separate disk: ``journal``, ``db`` or ``wal`` to device class."""
        return {r: p for r in _PLACES[self.objectstore] if (p := str(getattr(self, r))) != WITH_DATA}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def why_no_filestore(version: str) -> str:
    """Return why a release has no FileStore; empty if it has.

    Args:
        version: such as ``18.2.7``.
    """
    major = version.partition(".")[0]
    if not major.isdigit() or int(major) < _FIRST_WITHOUT_FILESTORE:
        return ""
    return f"Ceph {version} has no FileStore: Reef (18.2) removed it"


def wants_filestore(key: str, value: Value) -> bool:
    """Return whether a setting of the scope ``osd_store`` implies FileStore."""
    return key in _FILESTORE_KEYS or (key == "objectstore" and value == FILESTORE)


def fault_of_store(key: str, value: Value) -> str:
    """Return what is wrong with the value of one of ``STORE_KEYS``; empty if it is valid."""
    right = {"objectstore": tuple(_PLACES), "filesystem": FILE_SYSTEMS}.get(key)
    return f"{key} cannot be {value!r}: choose from {', '.join(right)}" if right and value not in right else ""


def store_of(settings: Mapping[str, Value], base: OsdStore) -> OsdStore:
    """Return the store that settings of the scope ``osd_store`` require.

    Args:
        settings: key to value. Missing keys come from ``base`` if that has the same object store, else from the
            defaults. A file system without an object store implies FileStore; FileStore without a file system
            implies xfs.
        base: the OSD's original store.

    Raises:
        InputError: they contradict each other.
    """
    if unknown := set(settings) - set(STORE_KEYS):
        raise InputError(f"there is no setting osd_store/{min(unknown)}", remedy=f"choose from: {STORE_KEYS}")
    words = {key: str(value) for key, value in settings.items()}
    implied = FILESTORE if words.keys() & set(_FILESTORE_KEYS) else base.objectstore
    objectstore = words.setdefault("objectstore", implied)
    if objectstore != base.objectstore or words.get("filesystem", base.filesystem) != base.filesystem:
        if objectstore == FILESTORE:
            words.setdefault("filesystem", FILE_SYSTEMS[0])
        return OsdStore(**words)
    return replace(base, **words)


ISCSI = "iscsi"
NFS = "nfs"
SWIFT = "swift"


@dataclass(frozen=True, slots=True)
class ProtocolOption:
    """One option of a protocol.

    Attributes:
        default: its value where a configuration does not set it, on a server of a lab.
        choices: all values as text; empty for a number.
        is_size: the number is one of bytes, also written like 64K.
        least: smallest number.
        is_of_server: the server has it, not the client.
        is_agreed: the client asks for it and the server agrees; a server of a lab is set to agree.
    """

    default: str
    choices: tuple[str, ...] = ()
    is_size: bool = False
    least: int = 1
    is_of_server: bool = False
    is_agreed: bool = False

    def text(self, value: Value) -> str:
        """Return a value in one form: ``65536`` for ``64K``, ``true`` for True.

        Raises:
            InputError: it is not a value of this option.
        """
        text = as_yaml(value)
        if self.choices:
            if text not in self.choices:
                raise InputError(f"{value!r} is not one of {', '.join(self.choices)}")
            return text
        number = parse_nbytes(text) if self.is_size else int(text) if text.isdecimal() else 0
        if number < self.least:
            raise InputError(f"{value!r} is not a whole number of at least {self.least}")
        return str(number)


_BOOLEAN = ("true", "false")
_DIGESTS = ("none", "crc32c")

PROTOCOL_OPTIONS: Mapping[str, Mapping[str, ProtocolOption]] = {
    ISCSI: {
        "header_digest": ProtocolOption("none", _DIGESTS, is_agreed=True),
        "data_digest": ProtocolOption("none", _DIGESTS),
        "sessions": ProtocolOption("1"),
        "queue_depth": ProtocolOption("128", is_of_server=True),
        "immediate_data": ProtocolOption("true", _BOOLEAN, is_of_server=True),
        "initial_r2t": ProtocolOption("true", _BOOLEAN, is_of_server=True),
        "first_burst_length": ProtocolOption("65536", is_size=True, least=512, is_of_server=True),
        "max_burst_length": ProtocolOption("262144", is_size=True, least=512, is_of_server=True),
        "server_cache": ProtocolOption("false", _BOOLEAN, is_of_server=True),
    },
    NFS: {
        "version": ProtocolOption("3", ("3", "4.0", "4.1", "4.2")),
        "sync": ProtocolOption("true", _BOOLEAN, is_of_server=True),
        "rsize": ProtocolOption("1048576", is_size=True, least=1024, is_of_server=True),
        "wsize": ProtocolOption("1048576", is_size=True, least=1024, is_of_server=True),
    },
    SWIFT: {
        "segment_size": ProtocolOption("524288", is_size=True, least=4096),
        "replicas": ProtocolOption("1", ("1", "2", "3")),
    },
}
"""Scope to key to option. The iSCSI defaults are those of tgt 1.0.85 (RFC 7143 names the same), except for
``server_cache``: with direct writes on the server, a write has reached the disk when it returns, as on Ceph."""


def fault_of_protocol_value(scope: str, key: str, value: Value) -> str:
    """Return what is wrong with a value of a known key; empty if nothing."""
    try:
        PROTOCOL_OPTIONS[scope][key].text(value)
    except InputError as error:
        return f"{key}: {error.what}"
    return ""


OSD_DISK = "osd_disk"
"""Keys of /sys/block/DISK/queue for the OSDs' disks: scheduler, nr_requests, read_ahead_kb ..."""
CLIENT_DISK = "client_disk"
"""The same for the clients' disks."""
OSD_HOST = "osd_host"
"""sysctl keys of the OSDs' hosts, and ``cpu_governor``."""
NETWORK = "network"
"""The network of the OSDs' hosts: MTU, and packets delayed or dropped on purpose."""
CLIENT_NETWORK = "client_network"
"""The path between clients and daemons: packets delayed or dropped on purpose, without those of replication."""
OSD_STORE = "osd_store"
"""The layout of the OSDs' disks; a different layout requires new OSDs."""

GREATER_SCOPES = (OSD_DISK, CLIENT_DISK, OSD_HOST, NETWORK, CLIENT_NETWORK, OSD_STORE, *PROTOCOL_OPTIONS)
CPU_GOVERNOR = "cpu_governor"
MTU = "mtu"
LOSS_PCT = "loss_pct"
EMULATION_KEYS = ("delay_ms", "jitter_ms", LOSS_PCT, "rate_mbit")
_LEAST_MTU = 68
"""Minimum of IPv4 (RFC 791)."""

_KEYS: Mapping[str, Sequence[str]] = {
    NETWORK: (MTU, *EMULATION_KEYS),
    CLIENT_NETWORK: EMULATION_KEYS,
    OSD_STORE: STORE_KEYS,
    **{scope: tuple(options) for scope, options in PROTOCOL_OPTIONS.items()},
}
"""Keys of scopes with a fixed set; the kernel has too many keys of the others to list."""
_MASK = re.compile(r"(class|host|osd|root|rack|row|room|datacenter):[A-Za-z0-9_.-]+")
_SYSCTL = re.compile(r"[a-z0-9_]+([./][A-Za-z0-9_-]+)+")


def base_scope(scope: str) -> str:
    """Return a scope without its mask: ``osd_store`` for ``osd_store/class:hdd``."""
    return scope.partition("/")[0]


def fault_of_scope(scope: str) -> str:
    """Return what is wrong with a scope of a sweep file; empty if it is valid."""
    base, slash, mask = scope.partition("/")
    if base not in GREATER_SCOPES:
        return f"{base!r} is not a scope of the greater environment"
    if slash and base in (CLIENT_DISK, CLIENT_NETWORK):
        return f"{base} takes no mask: all clients are equal"
    if slash and base in PROTOCOL_OPTIONS:
        return f"{base} takes no mask: it is the protocol of all clients"
    if slash and not _MASK.fullmatch(mask):
        return f"{mask!r} is not a mask: write it like class:hdd, host:NAME or osd:3"
    return ""


def keys_of(scope: str) -> Sequence[str]:
    """Return all keys of a scope; empty where only the kernel defines them."""
    return _KEYS.get(base_scope(scope), ())


def fault_of_key(scope: str, key: str) -> str:
    """Return what is wrong with a key of a scope, as far as known without the host; empty if nothing."""
    base = base_scope(scope)
    known = _KEYS.get(base)
    if known is not None:
        return "" if key in known else f"{scope} has no key {key!r}"
    if base == OSD_HOST:
        return "" if key == CPU_GOVERNOR or _SYSCTL.fullmatch(key) else f"{key!r} is not a sysctl key"
    return "" if re.fullmatch(r"[A-Za-z0-9_]+", key) else f"{key!r} is not the name of a queue value"


def fault_of_value(scope: str, key: str, value: Value) -> str:
    """Return what is wrong with a value, as far as known without the host; empty if nothing."""
    base = base_scope(scope)
    if base == OSD_STORE:
        return fault_of_store(key, value)
    if base in PROTOCOL_OPTIONS:
        return fault_of_protocol_value(base, key, value)
    if base not in (NETWORK, CLIENT_NETWORK):
        return ""
    try:
        number = float("nan" if isinstance(value, bool) else value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        return f"{key} must be a number, not {value!r}"
    if key == MTU and not (number.is_integer() and number >= _LEAST_MTU):
        return f"{key} must be a whole number of at least {_LEAST_MTU}, not {value}"
    if number < 0 or (key == LOSS_PCT and number >= 100):
        return f"{key} cannot be {value}"
    return ""


def applies_to(scope: str, daemon: Daemon) -> bool:
    """Return whether a scope, with or without a mask, applies to an OSD."""
    return rank(_section(scope), daemon) is not None


def strongest_for(settings: Sequence[Setting], daemon: Daemon) -> dict[str, Setting]:
    """Return the settings of one base scope that apply to an OSD: a masked scope beats one without."""
    chosen: dict[str, Setting] = {}
    for key in dict.fromkeys(setting.key for setting in settings):
        rivals = {_section(s.scope): s for s in settings if s.key == key}
        if (section := strongest(list(rivals), daemon)) is not None:
            chosen[key] = rivals[section]
    return chosen


def _section(scope: str) -> str:
    """Return the section of Ceph's configuration that applies to the same OSDs."""
    mask = scope.partition("/")[2]
    if not mask:
        return "osd"
    word, _, which = mask.partition(":")
    return f"osd.{which}" if word == "osd" else f"osd/{mask}"
