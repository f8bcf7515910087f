"""Answers, errors and capabilities that every ``CephAdmin`` shares.

The module parses Ceph's answers, builds the errors of refused commands, and lists the cephx capabilities that a
client's key needs at least.
"""

import errno
import json
import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from cephfit.core.errors import ClusterError

LOCK_PREFIX = "cephfit/lock/"
"""Prefix of a cluster's lock in the monitors' key-value store."""
_LOCK = (
    f'allow command "config-key dump" with key={LOCK_PREFIX}, '
    f'allow command "config-key set" with key prefix {LOCK_PREFIX}, '
    f'allow command "config-key rm" with key prefix {LOCK_PREFIX}'
)
"""The monitors open their key-value store to ``allow *`` only; it may hold keys of encrypted disks."""


class Level(StrEnum):
    """What cephfit does on a cluster."""

    READ = "read"
    """Show options, plans and previews."""
    ONLY_POOL = "only-pool"
    """Sweep within one existing pool: images, clients' options."""
    FULL = "full"
    """Sweep options of daemons and pools that cephfit creates."""


def capabilities(level: Level, *, pool: str = "") -> Mapping[str, str]:
    """Return the capabilities per daemon type.

    Args:
        level: what cephfit does.
        pool: of ``ONLY_POOL``.
    """
    if level is Level.READ:
        return {"mon": "allow r", "mgr": "allow r"}
    if level is Level.ONLY_POOL:
        return {
            "mon": f"allow r, profile rbd, {_LOCK}",
            "mgr": "allow r, profile rbd",
            "osd": f"profile rbd pool={pool}",
        }
    # OSDs accept commands (reading values, dropping caches) only from keys with full access.
    return {"mon": f"allow rw, profile rbd, {_LOCK}", "mgr": "allow rw", "osd": "allow *"}


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
        return f"mon '{_LOCK}'"
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
