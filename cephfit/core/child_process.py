"""Child processes that never outlive the thread that started them, even when that is killed."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cephfit.core.errors import ClusterError, HostError, LackingError

# Checks that the parent is still alive. The parent may have died before setpriv asked the kernel to kill this
# process with it. The program is constant; all variable parts are arguments.
_ONLY_WITH_PARENT = 'test "$PPID" = "$1" || exit 1; shift; exec "$@"'


def find_program(name: str, *, package: str) -> str:
    """Return the path of a program.

    Raises:
        LackingError: it is not installed; names Debian's package.
    """
    path = shutil.which(name)
    if path is None:
        raise LackingError(f"the program {name} is missing", remedy=f"install it: apt install {package}")
    return path


def find_guard() -> str:
    """Return the path of setpriv, which makes a process die with its parent.

    Raises:
        HostError: it is not installed.
    """
    return find_program("setpriv", package="util-linux")


def start(
    command: Sequence[str],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    pass_fds: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
    folder: Path = Path("/"),
    signal_at_death: str = "KILL",
) -> subprocess.Popen[str]:
    """Start a program, by default with pipes for its output. The kernel kills it with the calling thread.

    Args:
        command: the program's path and its arguments.
        stdin, stdout, stderr: as ``subprocess.Popen`` takes them.
        pass_fds: open files that it inherits.
        environment: added to the environment of this process.
        folder: its working directory.
        signal_at_death: signal that the kernel sends when the thread ends: KILL, or one that the program handles.

    Raises:
        HostError: setpriv is missing.
    """
    dying = (find_guard(), "--pdeathsig", signal_at_death, "--")
    guard = (*dying, "/bin/sh", "-c", _ONLY_WITH_PARENT, "sh", str(os.getpid()))
    return subprocess.Popen(
        (*guard, *command),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        text=True,
        errors="replace",
        cwd=folder,
        pass_fds=pass_fds,
        # An interrupt from the keyboard reaches cephfit alone, which then ends the program.
        start_new_session=True,
        env={**os.environ, "LC_ALL": "C", **(environment or {})},
    )


def end(process: subprocess.Popen[str], name: str) -> None:
    """Ensure that a process has ended; kill it if it runs.

    Raises:
        HostError: it cannot be killed.
    """
    if process.poll() is None:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=30)
    if process.poll() is None:
        raise HostError(
            f"{name} (process {process.pid}) hangs in the kernel and cannot be killed",
            remedy="the device under it does not answer: look at the cluster, then run the sweep again",
        )


def run_to_end(
    command: Sequence[str],
    *,
    seconds: float,
    where: str,
    environment: Mapping[str, str] | None = None,
    folder: Path = Path("/"),
) -> tuple[int, str, str]:
    """Run a program, and kill it and the processes of its group that are left when it takes too long.

    Args:
        command: the program's path and its arguments.
        seconds: the longest time.
        where: name of the program, for errors.
        environment, folder: as in ``start``.

    Returns:
        Its exit code, output and errors.

    Raises:
        ClusterError: it did not end in time.
        HostError: it cannot be killed, or setpriv is missing.
        OSError: it cannot be started.
    """
    # Files instead of pipes, which processes that the program leaves running would keep open.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(command, environment=environment, folder=folder, stdout=out.fileno(), stderr=err.fileno())
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"no end within {seconds:g} s", where=where) from None
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            end(process, where)
        out.seek(0)
        err.seek(0)
        printed, complained = (file.read().decode(errors="replace") for file in (out, err))
    return code, printed, complained
