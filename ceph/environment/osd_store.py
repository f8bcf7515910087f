"""Layout of an OSD: object store, file system of FileStore, placement of journal, DB and WAL."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.values.configuration import Value

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
