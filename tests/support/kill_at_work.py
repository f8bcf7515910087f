"""A program that is killed at work."""

import os
import signal
import subprocess
import sys
import time


def kill_at_work(code: str, *arguments: object, after_seconds: float) -> None:
    """Run Python code that prints ``ready`` and then works for ever, and kill it so long after that word.

    The code may import what the test can import.
    """
    argv = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as victim:
        assert victim.stdout is not None
        ready = victim.stdout.readline()
        time.sleep(after_seconds)
        os.kill(victim.pid, signal.SIGKILL)
    assert (ready, victim.returncode) == ("ready\n", -signal.SIGKILL), "it was to be killed at work"
