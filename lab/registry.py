"""The registry of labs, and the journal of each, from which all its parts can be found."""

import fcntl
import json
import os
import random
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from platformdirs import user_state_path

from cephfit.ceph.environment.scopes import OsdStore
from cephfit.core.errors import HostError, InputError
from cephfit.lab.lab_spec import LabSpec

SCHEMA_VERSION = 1
_PORTS = range(20000, 32000)
"""Below the ephemeral ports of Linux, above those of well-known services."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_NAME_RULE = "a lab's name has at most 32 letters, digits, - and _, and begins with a letter or digit"
_SOCKET_PATH_MAX = 107
"""Maximum length of a Unix socket's path in bytes (unix(7))."""


@dataclass(frozen=True, slots=True)
class Record:
    """A lab's journal (``lab.json``), written before anything is created.

    Attributes:
        name: unique among the labs of this user.
        fsid: identifier of the cluster.
        mon_port: on 127.0.0.1.
        ready: it was healthy once; False: `lab up` did not complete.
        devices: loop device last attached for each OSD id.
        spec: its specification.
        more_ports: on 127.0.0.1, of its OpenStack.
        stores: object stores of recreated OSDs that differ from the specification.
        unmade: OSDs that are being recreated; not empty after a kill during this.
        former: loop devices of earlier starts, which may still have limits.
    """

    name: str
    fsid: str
    mon_port: int
    ready: bool
    devices: dict[int, str]
    spec: LabSpec
    more_ports: tuple[int, ...] = ()
    stores: dict[int, OsdStore] = field(default_factory=dict)
    unmade: tuple[int, ...] = ()
    former: tuple[str, ...] = ()

    def store(self, osd: int) -> OsdStore:
        """Return the object store of an OSD, also of one that is not created yet."""
        return self.stores.get(osd, self.spec.store(osd))

    def write(self, folder: Path) -> None:
        document = {**asdict(self), "schema_version": SCHEMA_VERSION, "spec": self.spec.to_json()}
        temporary = folder / "lab.json.new"
        with temporary.open("w") as stream:
            json.dump(document, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(folder / "lab.json")

    @classmethod
    def read(cls, folder: Path) -> "Record | None":
        """Return the journal of a lab; None if there is none.

        Raises:
            InputError: it cannot be read.
        """
        file = folder / "lab.json"
        try:
            document = json.loads(file.read_text())
            if document["schema_version"] != SCHEMA_VERSION:
                raise InputError(
                    f"schema version {document['schema_version']}, this cephfit knows {SCHEMA_VERSION}",
                    where=str(file),
                    remedy="remove this lab with the version of cephfit that created it",
                )
            return cls(
                name=document["name"],
                fsid=document["fsid"],
                mon_port=document["mon_port"],
                ready=document["ready"],
                devices={int(osd): device for osd, device in document["devices"].items()},
                spec=LabSpec.from_json(document["spec"]),
                stores={int(o): OsdStore(**store) for o, store in document.get("stores", {}).items()},
                unmade=tuple(document.get("unmade", ())),
                more_ports=tuple(document.get("more_ports", ())),
                former=tuple(document.get("former", ())),
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"not a lab's journal: {error!r}", where=str(file)) from None


def is_lab(folder: Path) -> bool:
    """Return whether a lab, complete or not, has its journal in ``folder``."""
    return (folder / "lab.json").exists()


def labs_root() -> Path:
    """Default folder of labs: ``$XDG_STATE_HOME/cephfit/labs``."""
    return user_state_path("cephfit") / "labs"


def lab_names() -> list[str]:
    """Names of all labs of this user, including incomplete ones."""
    root = labs_root()
    return sorted(e.name for e in root.iterdir() if not e.name.startswith(".")) if root.is_dir() else []


def folder_of(name: str) -> Path | None:
    """Return the folder of a lab, which may not exist; None if the name is not in use, or is none."""
    if not _NAME.fullmatch(name):
        return None
    entry = labs_root() / name
    try:
        if entry.is_symlink():
            return entry.readlink()
    except FileNotFoundError:  # deleted at this moment
        return None
    return entry.resolve() if entry.exists() else None


def no_such_lab(name: str) -> InputError:
    """Return the error for an unknown name; it names the existing labs."""
    if not _NAME.fullmatch(name):
        return InputError(f"{name!r} cannot be a lab's name", remedy=_NAME_RULE)
    names = lab_names()
    remedy = (
        f"there are: {', '.join(names)}" if names else f"there is none; `cephfit lab up --name {name}` creates it"
    )
    if not names and os.geteuid() != 0:
        remedy += "; a lab belongs to root, so look for it with sudo"
    return InputError(f"there is no lab {name!r}", where=str(labs_root()), remedy=remedy)


def claim(name: str, folder: Path | None) -> Path:
    """Reserve a name and an empty folder for a new lab; the folder exists afterwards.

    Raises:
        InputError: the name or the folder is in use or unsuitable.
    """
    if not _NAME.fullmatch(name):
        raise no_such_lab(name)
    root = labs_root()
    entry = root / name
    place = entry if folder is None else folder
    place = place.parent.resolve() / place.name
    longest = f"{place}/run/osd.99.asok"
    if len(os.fsencode(longest)) > _SOCKET_PATH_MAX or re.search(r"[\s,;#\"'\\]", str(place)):
        raise InputError(
            "a lab's folder needs a short, plain path: Ceph's sockets are in it and its files name it",
            where=str(place),
            remedy=f"choose one with --folder, at most {_SOCKET_PATH_MAX - len('/run/osd.99.asok')} bytes, "
            "without spaces, quotes, commas, semicolons and #",
        )
    root.mkdir(parents=True, exist_ok=True)
    with _root_lock(root):
        if entry.is_symlink() or entry.exists():
            raise InputError(
                f"lab {name!r} already exists",
                where=str(folder_of(name)),
                remedy=f"see `cephfit lab status --name {name}`, remove it with `cephfit lab down "
                f"--name {name}`, or choose another --name",
            )
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise InputError("the folder is not empty", where=str(place), remedy="choose another --folder")
        place.mkdir(parents=True, exist_ok=True)
        # Other users may enter (a database on one of its volumes runs as another user), but not list it.
        place.chmod(0o711)
        if place != entry:
            entry.symlink_to(place)
    return place


def release(name: str) -> None:
    """Release the name; the folder is deleted or the target of a link."""
    entry = labs_root() / name
    if entry.is_symlink():
        entry.unlink()


def pick_ports(n: int) -> tuple[int, ...]:
    """Return free ports on 127.0.0.1 that no lab of this user has, including stopped labs.

    Raises:
        HostError: there are too few.
    """
    taken = set()
    for name in lab_names():
        folder = folder_of(name)
        try:
            record = Record.read(folder) if folder else None
        except InputError:
            continue
        if record is not None:
            taken |= {record.mon_port, *record.more_ports}
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(found) == n:
            break
        if port in taken:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    if len(found) < n:
        raise HostError(
            "not enough free ports between 20000 and 32000",
            where="127.0.0.1",
            remedy="remove an unused lab (`cephfit lab down`), or end programs that listen there",
        )
    return tuple(found)


@contextmanager
def _root_lock(root: Path) -> Iterator[None]:
    with (root / ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@contextmanager
def choosing() -> Iterator[None]:
    """Lock the choice of names and ports among the labs of this user within the block."""
    root = labs_root()
    root.mkdir(parents=True, exist_ok=True)
    with _root_lock(root):
        yield


@contextmanager
def port_choice(n: int = 1) -> Iterator[tuple[int, ...]]:
    """Yield free ports, locked until the block ends; write the record within the block."""
    with choosing():
        yield pick_ports(n)


@contextmanager
def working_on(folder: Path) -> Iterator[None]:
    """Only one process at a time makes, starts, stops or removes a lab. The kernel lets go if it dies.

    Raises:
        HostError: another one does.
    """
    with (folder / "lock").open("a+") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.seek(0)
            raise HostError(
                f"process {stream.read().strip() or '?'} is working on this lab",
                where=str(folder),
                remedy="wait until it is done, or end it",
            ) from None
        stream.truncate(0)
        stream.write(str(os.getpid()))
        stream.flush()
        yield
