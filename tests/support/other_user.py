"""Starting programs without root's rights, also where only root can enter the folder of the installation."""

import functools
import os
import subprocess
import sys

OTHER_USER = 65534
_AS_OTHER_USER = ("setpriv", "--reuid", str(OTHER_USER), "--regid", str(OTHER_USER), "--clear-groups")


def as_other_user() -> tuple[str, ...]:
    """Return the words before a command with which root starts it as another user; none where this is not root.

    A clone in root's home cannot be entered by other users. There, the command may read everything.
    """
    if os.geteuid() != 0:
        return ()
    if _can_be_entered():
        return _AS_OTHER_USER
    return (*_AS_OTHER_USER, "--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")


def reading_only() -> tuple[str, ...]:
    """Return the words with which a command cannot write files whose mode forbids it.

    In a clone in root's home it is root without its capabilities: what may read everything is not believed by
    ``os.access``, which Alembic asks.
    """
    if os.geteuid() != 0 or _can_be_entered():
        return as_other_user()
    return ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")


@functools.cache
def _can_be_entered() -> bool:
    """Return whether another user can run this installation."""
    argv = [*_AS_OTHER_USER, sys.executable, "-c", "import cephfit.cli.main"]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0
