"""A program that is killed at work."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def kill_at_work(code: str, *arguments: object, after_seconds: float) -> None:
    """Run Python code that prints ``ready`` and then works for ever, and kill it so long after that word.

    The code may import the modules next to this one.
    """
    argv = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as victim:
        assert victim.stdout is not None
        ready = victim.stdout.readline()
        time.sleep(after_seconds)
        os.kill(victim.pid, signal.SIGKILL)
    assert (ready, victim.returncode) == ("ready\n", -signal.SIGKILL), "it was to be killed at work"
