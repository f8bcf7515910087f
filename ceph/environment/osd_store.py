"""What an OSD keeps its objects in: object store, file system of FileStore, and where the journal lies."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.values.configuration import Value

BLUESTORE = "bluestore"
FILESTORE = "filestore"
FILE_SYSTEMS = ("xfs", "btrfs", "ext4")
WITH_DATA = "data"
"""Placement of a journal, DB or WAL on the disk of the data itself."""

_PLACES = {FILESTORE: ("journal",), BLUESTORE: ("db", "wal")}
"""What can lie elsewhere than the data, by object store."""
_FILESTORE_KEYS = ("filesystem", "mkfs_options", "mount_options", "journal")
STORE_KEYS = ("objectstore", *_FILESTORE_KEYS, "db", "wal")
"""Keys of the scope ``osd_store``."""


@dataclass(frozen=True, slots=True)
class OsdStore:
    """How an OSD's disk is laid out.

    Attributes:
        objectstore: ``bluestore`` or ``filestore``.
        filesystem: of FileStore: ``xfs``, ``btrfs`` or ``ext4``; empty for BlueStore.
        mkfs_options: further arguments of mkfs, apart by blanks.
        mount_options: as mount -o takes them, instead of the usual ones of the file system.
        journal: where FileStore's journal lies: ``data`` (a file on the same file system) or a device class: on
            a disk of its own that is as fast as those of the class.
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
                f"FileStore cannot be put on {self.filesystem or 'no file system'}",
                remedy=f"choose from: {', '.join(FILE_SYSTEMS)}",
            )
        for key in ("filesystem", "mkfs_options", "mount_options", "journal", "db", "wal"):
            concerns = FILESTORE if key in _FILESTORE_KEYS else BLUESTORE
            if concerns != self.objectstore and getattr(self, key) not in ("", WITH_DATA):
                raise InputError(f"{key} is of {concerns}, and the object store is {self.objectstore}")

    def __str__(self) -> str:
        text = f"filestore on {self.filesystem}" if self.objectstore == FILESTORE else BLUESTORE
        text += "".join(f", {role} on {place}" for role, place in self.placed().items())
        return text + "".join(f", {text}" for text in (self.mkfs_options, self.mount_options) if text)

    def placed(self) -> dict[str, str]:
        """What lies on a disk of its own: ``journal``, ``db`` or ``wal`` to device class."""
        return {r: p for r in _PLACES[self.objectstore] if (p := str(getattr(self, r))) != WITH_DATA}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def fault_of_store(key: str, value: Value) -> str:
    """What is wrong with the value of one of ``STORE_KEYS`` by itself; empty if nothing."""
    right = {"objectstore": tuple(_PLACES), "filesystem": FILE_SYSTEMS}.get(key)
    return f"{key} cannot be {value!r}: choose from {', '.join(right)}" if right and value not in right else ""


def store_of(settings: Mapping[str, Value], base: OsdStore) -> OsdStore:
    """The store that settings of the scope ``osd_store`` ask for.

    Args:
        settings: key to value; what they leave open is as in ``base`` where that is of the same object store,
            else as usual. A file system without an object store means FileStore, FileStore without a file
            system xfs.
        base: what the OSD has unless it is set otherwise.

    Raises:
        InputError: they do not go together.
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
