"""Answers and errors that every ``CephAdmin`` shares, and differences of releases before Nautilus.

The module parses Ceph's answers, and builds the errors of refused commands with the capability that a key lacks.

Releases before Nautilus (14.2) differ in shapes of answers, names of arguments, and features. Source: Ceph's
sources of 12.2 and 13.2 (MonCommands.h, MonMap.cc, PGMap.cc). Not tested on clusters of that age.
"""

import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cephfit.core.errors import ClusterError
from cephfit.core.protocols import CephAdmin

LOCK_PREFIX = "cephfit/lock/"
"""Prefix of a cluster's lock in the monitors' key-value store."""
LOCK_CAPABILITY = (
    f'allow command "config-key dump" with key={LOCK_PREFIX}, '
    f'allow command "config-key set" with key prefix {LOCK_PREFIX}, '
    f'allow command "config-key rm" with key prefix {LOCK_PREFIX}'
)
"""The monitors open their key-value store to ``allow *`` only; it may hold keys of encrypted disks."""


def needed_for(whom: str, prefix: str) -> str:
    """Return the capability that a refused command needs, for messages.

    Args:
        whom: the daemon that refused: ``mon``, ``osd.3`` ...
        prefix: the command, such as ``config set``.
    """
    kind = whom.partition(".")[0]
    if kind == "osd":
        return "osd 'allow *'"
    if whom != kind:
        return f"{kind} 'allow *'"
    if prefix.startswith("config-key"):
        return f"mon '{LOCK_CAPABILITY}'"
    if prefix.startswith(_SERVED_BY_THE_MANAGER):
        return f"mgr 'allow {'rw' if prefix.startswith('orch daemon') else 'r'}'"
    return "mon 'allow r'" if prefix.startswith(_READING) else "mon 'allow rw'"


_SERVED_BY_THE_MANAGER = ("orch", "pg ls", "pg dump", "osd df", "osd ok-to-stop", "config show", "mgr ")
_READING = (
    "status", "health", "versions", "df", "mon dump", "mgr dump", "config dump", "config ls", "config help",
    "config get", "osd dump", "osd tree", "osd ls", "osd lspools", "osd metadata", "osd pool get", "osd pool ls",
    "osd getcrushmap", "osd getmap", "osd crush rule ls", "osd crush dump", "osd crush rule dump", "time-sync",
)  # fmt: skip

DEFAULT_TIMEOUT_SECONDS = 15.0
"""How long a command may take. Monitors answer in milliseconds; an election takes about 5 s."""


def require_conf(conf: Path) -> None:
    """Check that the configuration file exists.

    Raises:
        ClusterError: it does not exist; the messages of librados and `ceph` for this are less clear.
    """
    if not conf.is_file():
        raise ClusterError(
            "this Ceph configuration file does not exist",
            where=str(conf),
            remedy="give its path with --conf, or the cluster's name as ceph:NAME",
        )


def parse_answer(text: str) -> Any:
    """Parse a command's JSON; None for an empty answer.

    Some commands answer prose although JSON was requested (``cache drop``); it is returned as a string.
    """
    text = text.strip()
    if not text:
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


class RefusedError(ClusterError):
    """A daemon answered a command with an error. Not raised when there was no answer.

    Attributes:
        code: errno, positive.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "", code: int = 0) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.code = code

    @property
    def is_lasting(self) -> bool:
        """Whether the answer stays the same until an admin acts: a missing right or an unknown command.

        A daemon that is down or starting refuses commands only temporarily.
        """
        return self.code in (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP)


def refusal(whom: str, command: str, code: int, words: str) -> ClusterError:
    """Build the error for a command that failed with ``code`` (a positive errno), with Ceph's message.

    Args:
        whom: the daemon that refused: ``mon``, ``osd.3`` ...
        command: prefix and arguments as typed on a command line.
        code: errno, 0 if there is none.
        words: Ceph's message, may be empty.
    """
    name = errno.errorcode.get(code, str(code))
    reported = words.strip() or (os.strerror(code) if code else "no reason given")
    remedy = ""
    if code in (errno.ETIMEDOUT, errno.ENOTCONN):
        return ClusterError(
            f"`{command}` was not answered in time: {reported} [{name}]",
            where=whom,
            remedy="check that the daemons run and the network reaches them; then start the command again",
        )
    if code in (errno.EACCES, errno.EPERM):
        remedy = f"the client's key lacks the capability {needed_for(whom, command)} (docs/capabilities.md)"
    return RefusedError(f"`{command}` was refused: {reported} [{name}]", where=whom, remedy=remedy, code=code)


def spelled(prefix: str, arguments: dict[str, Any]) -> str:
    """Return a command as it is typed on a command line, for messages."""
    return " ".join([prefix, *(str(v) for v in arguments.values())])


_OLDEST = 12
_NAUTILUS = 14


def require_luminous(version: str, *, where: str) -> None:
    """Check that the release is supported.

    Raises:
        ClusterError: the cluster is older than Luminous.
    """
    if _major(version) < _OLDEST:
        raise ClusterError(
            f"this cluster runs Ceph {version}; its monitors and daemons do not report what cephfit needs",
            where=where,
            remedy="it works on Luminous (12.2) and later",
        )


def is_before_nautilus(version: str) -> bool:
    """Return whether a release, such as ``13.2.10``, is older than Nautilus."""
    return _major(version) < _NAUTILUS


def _major(version: str) -> int:
    major = version.partition(".")[0]
    return int(major) if major.isdigit() else _NAUTILUS


def as_before_nautilus(prefix: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert a command's arguments for monitors before Nautilus.

    Confirmations were choices of one word: ``force`` for ``osd pool set``, ``sure`` for others. Pools had no
    autoscaler.
    """
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        if name.startswith("yes_i_really_") and value is True:
            found["force" if prefix == "osd pool set" else "sure"] = "--" + name.replace("_", "-")
        elif name != "autoscale_mode":
            found[name] = value
    return found


def monitor_address(mon: Mapping[str, Any]) -> str:
    """Return a monitor's addresses, from ``mon dump``, in the syntax of ``mon_host``.

    Before Nautilus a monitor has one address, ``10.0.0.1:6789/0``; the last number is that of its process.
    """
    if "public_addrs" not in mon:
        return str(mon["addr"]).partition("/")[0]
    return "[" + ",".join(f"{a['type']}:{a['addr']}" for a in mon["public_addrs"]["addrvec"]) + "]"


def stored_nbytes(stats: Mapping[str, Any]) -> int:
    """Return the bytes that clients stored, from a pool's ``stats`` in ``df`` (``bytes_used`` before Nautilus)."""
    return int(stats.get("stored", stats.get("bytes_used", 0)))


def osds_up(admin: CephAdmin) -> list[int]:
    """Return the OSDs that are up. Others answer no command; those that are also out hold no data."""
    return [int(osd["osd"]) for osd in admin.command("osd dump")["osds"] if osd["up"]]


def drop_osd_caches(admin: CephAdmin) -> None:
    """Make all OSDs drop their caches.

    Raises:
        ClusterError: an OSD refuses, or does not answer.
    """
    for osd in osds_up(admin):
        admin.tell(f"osd.{osd}", "cache drop")


def why_no_cache_drop(admin: CephAdmin) -> str:
    """Return why OSDs cannot drop their caches by command; empty if they can. Changes nothing."""
    version = str(admin.command("version")["version"]).split()
    osds = osds_up(admin)
    if len(version) < 3 or not is_before_nautilus(version[2]) or not osds:
        return ""
    commands = admin.tell(f"osd.{osds[0]}", "get_command_descriptions").values()
    words = [[part for part in command["sig"] if isinstance(part, str)] for command in commands]
    return "" if ["cache", "drop"] in words else f"OSDs of Ceph {version[2]} do not have the command `cache drop`"


def listed_pgs(reported: Any) -> Sequence[Mapping[str, Any]] | None:
    """Return the PGs of ``pg ls``, ``pg ls-by-pool`` or ``pg ls-by-osd``; None if the manager does not know them.

    Before Nautilus the answer is the list itself (``PGMap::dump_filtered_pg_stats``), and empty where there is no
    PG. Since then it states whether the manager knows them (``pg_ready``); after a change of the map it does not
    for some seconds.
    """
    if isinstance(reported, list) or reported is None:
        return reported or ()
    return reported.get("pg_stats", ()) if reported.get("pg_ready", True) else None
