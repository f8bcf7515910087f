"""The worker process of the server: reads one request from standard input and writes one answer.

It limits itself before it reads anything that a client uploaded.
"""

import json
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cephfit.core.errors import CephfitError


def limit(limits: dict[str, Any]) -> None:
    """Limit this process for good; ``limits``: of ``limited_process.Limits``."""
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
