"""The first command on a machine reports that it compiles; the next one finds everything compiled."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trace_maker import mixed_workload, write

from cephfit.traces import compiled
from cephfit.traces.compiled import CompilationClock, announce_slow_compilation

PROFILE = [sys.executable, "-m", "cephfit.cli.main", "trace", "profile", "--json"]


def profile(trace: Path, cache: Path) -> tuple["subprocess.CompletedProcess[str]", float]:
    began = time.monotonic()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([*PROFILE, str(trace)], capture_output=True, text=True, timeout=300, env=environment)
    return done, time.monotonic() - began


def test_the_first_command_reports_it_in_one_line_and_the_second_is_fast_and_silent(tmp_path: Path) -> None:
    trace = write(tmp_path / "t", mixed_workload(100))
    first, slow_seconds = profile(trace, tmp_path / "cache")
    assert len(first.stderr.splitlines()) == 1 and "compiling" in first.stderr
    second, fast_seconds = profile(trace, tmp_path / "cache")
    assert (second.returncode, second.stderr) == (0, "")
    assert fast_seconds < slow_seconds / 2
    assert json.loads(first.stdout) == json.loads(second.stdout), "the line is not in the result"


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(compiled, "_announcers", [])
    lines: list[str] = []
    announce_slow_compilation(lambda: lines.append("compiling"))
    return lines


def test_short_compilations_are_reported_when_they_add_up(messages: list[str]) -> None:
    clock = CompilationClock(limit_seconds=0.3)
    clock.start()
    time.sleep(0.05)
    clock.end()
    time.sleep(0.4)
    assert not messages, "nothing was compiled in between"
    for _ in range(4):
        clock.start()
        clock.start()  # a loop that another loop calls
        time.sleep(0.1)
        clock.end()
        clock.end()
    assert messages == ["compiling"]
