"""Worker processes of the server, with limits of time, memory and file size: no upload can stop the server.

A worker reads one request from standard input and writes one answer. It limits itself before it reads anything
that a client uploaded.
"""

import json
import logging
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cephfit.core import child_process
from cephfit.core.errors import CephfitError, RefusedError
from cephfit.core.units import GIB, MIB, format_nbytes, format_seconds

TOKEN_VARIABLE = "CEPHFIT_SERVE_TOKEN"
"""Environment variable with the token of the server; worker processes do not get it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one worker process may use.

    Attributes:
        seconds: of time.
        memory_nbytes: of address space.
        file_nbytes: size of each file that it writes, also of its answer.
    """

    seconds: float = 1800.0
    memory_nbytes: int = 4 * GIB
    file_nbytes: int = 64 * MIB


class Workers:
    """Runs worker processes of the server. Safe to use from several threads.

    Args:
        limits: of each process.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        """Kill the running processes, and start no more."""
        with self._lock:
            self._is_closed = True
            for process in self._running:
                process.kill()

    def run(self, request: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Run a request in a worker process and return its answer. Blocks; the caller is a thread.

        Args:
            request: JSON values; ``kind`` names a function of the worker.
            folder: for temporary files; its path is removed from messages.

        Raises:
            RefusedError: the worker refused the request, or reached a limit; or the server ends.
            HostError: the process cannot be started.
        """
        with tempfile.TemporaryFile(dir=folder) as output, tempfile.TemporaryFile(dir=folder) as errors:
            process = self._started(output.fileno(), errors.fileno(), folder)
            try:
                given = json.dumps({**request, "limits": asdict(self._limits)})
                process.communicate(given, timeout=self._limits.seconds)
            except subprocess.TimeoutExpired:
                raise _too_long(self._limits) from None
            finally:
                child_process.end(process, "a worker of the server")
                with self._lock:
                    self._running.discard(process)
            output.seek(0)
            errors.seek(0)
            printed = output.read().decode(errors="replace")
            for own in (f"{folder}/files/", f"{folder}/"):
                printed = printed.replace(own, "")
            complaint = errors.read()[-_COMPLAINT:].decode(errors="replace")
        return _answer_of(process.returncode, printed, complaint, self._limits)

    def _started(self, output: int, errors: int, folder: Path) -> subprocess.Popen[str]:
        with self._lock:
            if self._is_closed:
                raise RefusedError(409, "the server ends", remedy="upload it again when it runs")
            process = child_process.start(
                [sys.executable, "-m", "cephfit.server.worker_process"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                environment={TOKEN_VARIABLE: "", "TMPDIR": str(folder)},
            )
            self._running.add(process)
        return process


_log = logging.getLogger(__name__)
_COMPLAINT = 4096
"""Last bytes of the worker's error output that are looked at."""
_CPU_TIME = -24
"""Exit code after SIGXCPU."""
_MEMORY_SIGNS = (
    "MemoryError",
    "LLVM ERROR: out of memory",
    "bad_alloc",
    "Unable to allocate",
    "Cannot allocate memory",
)


def _answer_of(code: int, printed: str, complaint: str, limits: Limits) -> dict[str, Any]:
    if code == _CPU_TIME:
        raise _too_long(limits)
    if code != 0:
        if any(sign in complaint for sign in _MEMORY_SIGNS) or code in (-6, -11):
            raise RefusedError(
                422,
                f"it needs more than {format_nbytes(limits.memory_nbytes)} of memory",
                remedy="use `cephfit trace profile` on the command line, and upload the profile",
            )
        _log.error("a worker ended with code %d: %s", code, complaint)
        raise RefusedError(
            422,
            "it cannot be read",
            remedy="is it a trace? `cephfit trace profile` on the command line reports more",
        )
    answer: dict[str, Any] = json.loads(printed)
    if "error" in answer:
        raise RefusedError(422, **answer["error"])
    return answer


def _too_long(limits: Limits) -> RefusedError:
    return RefusedError(
        422,
        f"it took longer than {format_seconds(limits.seconds)}",
        remedy="use `cephfit trace profile` on the command line, and upload the profile",
    )


def limit(limits: dict[str, Any]) -> None:
    """Limit this process for good; ``limits``: those of ``Limits``."""
    seconds = int(limits["seconds"]) + 1
    for kind, most in (
        (resource.RLIMIT_CPU, seconds * 4),  # several threads may work; the parent limits the time on the clock
        (resource.RLIMIT_AS, limits["memory_nbytes"]),
        (resource.RLIMIT_FSIZE, limits["file_nbytes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most, hard) if hard == resource.RLIM_INFINITY else (min(most, hard), hard))
    with suppress(OSError):  # the kernel ends this process first when memory is short
        Path("/proc/self/oom_score_adj").write_text("1000")


def profile(request: dict[str, Any]) -> dict[str, Any]:
    """Read a trace, or a profile; see ``workloads.read_workload``."""
    from cephfit.server.workloads import described, read_workload

    found = read_workload(Path(request["folder"]), request["options"])
    return {"profile": found.to_json(), "html": described(found)}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Predict for a profile; see ``workload_answer.answered``."""
    from cephfit.core.profile_files import read_profile
    from cephfit.server.workload_answer import Question, answered

    document, html = answered(read_profile(Path(request["profile"])), Question(**request["question"]))
    return {"answer": document, "html": html}


KINDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"profile": profile, "answer": answer}


def main() -> None:
    """Answer the request; errors of the input are answers, too."""
    request = json.load(sys.stdin)
    limit(request["limits"])
    try:
        found = KINDS[request["kind"]](request)
    except CephfitError as error:
        found = {"error": {"what": error.what, "where": error.where, "remedy": error.remedy}}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
