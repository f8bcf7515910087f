"""What every way of administering has in common: reading Ceph's answers and wording its refusals."""

import errno
import json
import os
from pathlib import Path
from typing import Any

from cephfit.errors import ClusterError
from cephfit.sweep.capabilities import needed_for

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
