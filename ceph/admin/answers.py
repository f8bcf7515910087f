"""What every CephAdmin shares: reading answers, wording refusals, the capabilities that a key needs.

The least that a client's key must be allowed (cephx capabilities), by what cephfit is to do on a cluster.

What every way of administering has in common: reading Ceph's answers and wording its refusals.
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
"""Where the lock of a cluster lies in the monitors' key-value store."""
_LOCK = (
    f'allow command "config-key dump" with key={LOCK_PREFIX}, '
    f'allow command "config-key set" with key prefix {LOCK_PREFIX}, '
    f'allow command "config-key rm" with key prefix {LOCK_PREFIX}'
)
"""The monitors keep their key-value store from everybody but ``allow *``; it may hold keys of encrypted disks."""


class Level(StrEnum):
    """What cephfit is to do."""

    READ = "read"
    """Show options, plans and previews."""
    ONLY_POOL = "only-pool"
    """Sweep within one pool that is there: images, clients' options."""
    FULL = "full"
    """Sweep options of daemons and pools of cephfit's own."""


def capabilities(level: Level, *, pool: str = "") -> Mapping[str, str]:
    """Daemon type to capabilities.

    Args:
        level: what for.
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
    # OSDs take commands (their values, dropping their caches) only from those who may do everything to them.
    return {"mon": f"allow rw, profile rbd, {_LOCK}", "mgr": "allow rw", "osd": "allow *"}


def needed_for(whom: str, prefix: str) -> str:
    """The capability that a refused command needs, for messages.

    Args:
        whom: ``mon``, ``osd.3`` ...: who refused.
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
    """Raises:
    ClusterError: there is no such file; librados and `ceph` would say so in a sentence of their own only.
    """
    if not conf.is_file():
        raise ClusterError(
            "this Ceph configuration file does not exist",
            where=str(conf),
            remedy="give its path with --conf, or the cluster's name as ceph:NAME",
        )


def parse_answer(text: str) -> Any:
    """A command's JSON; None where it answered nothing.

    Some commands answer prose although JSON was asked for (``cache drop``); it comes back as a string.
    """
    text = text.strip()
    if not text:
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


class RefusedError(ClusterError):
    """A daemon answered a command with an error. Not raised when no answer came.

    Attributes:
        code: errno, positive.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "", code: int = 0) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.code = code

    @property
    def is_lasting(self) -> bool:
        """Whether the answer stays the same until a person does something: rights and commands that are missing.

        Who is down or starting at this moment refuses, too.
        """
        return self.code in (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP)


def refusal(whom: str, command: str, code: int, words: str) -> ClusterError:
    """The error for a command that came back with ``code`` (a positive errno), in Ceph's own words.

    Args:
        whom: ``mon``, ``osd.3`` ...: who refused.
        command: prefix and arguments as a person would type them.
        code: errno, 0 if there is none.
        words: what Ceph said, may be empty.
    """
    name = errno.errorcode.get(code, str(code))
    said = words.strip() or (os.strerror(code) if code else "no reason given")
    remedy = ""
    if code in (errno.ETIMEDOUT, errno.ENOTCONN):
        return ClusterError(
            f"`{command}` was not answered in time: {said} [{name}]",
            where=whom,
            remedy="see whether the daemons run and the network reaches them; then start the command again",
        )
    if code in (errno.EACCES, errno.EPERM):
        remedy = f"the client's key lacks the capability {needed_for(whom, command)} (docs/capabilities.md)"
    return RefusedError(f"`{command}` was refused: {said} [{name}]", where=whom, remedy=remedy, code=code)


def spelled(prefix: str, arguments: dict[str, Any]) -> str:
    """A command the way a person types it, for messages."""
    return " ".join([prefix, *(str(v) for v in arguments.values())])
