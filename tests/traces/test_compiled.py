"""Loops that were compiled before the code changed are not used after it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trace_maker import mixed_workload, write

from cephfit.traces import compiled
from cephfit.traces.compiled import CompilationClock, _with_imports, announce_slow_compilation, version_of


def test_the_version_of_a_loop_changes_only_with_what_it_imports(tmp_path: Path) -> None:
    loop = tmp_path / "loop.py"
    loop.write_text(
        "from cephfit.traces.columns import (\n    OP_READ,\n)\nfrom cephfit.traces.lines import plain_lines\n"
    )
    read = {file.name for file in _with_imports(loop)}
    assert {"loop.py", "columns.py", "plain_lines.py", "compiled.py", "delimited_loop.py"} <= read
    assert not {"profiling.py", "sample.py"} & read, "the loop does not import them"
    before = version_of(loop)
    assert version_of(loop) == before
    loop.write_text(loop.read_text() + "x = 1\n")
    assert version_of(loop) != before


def test_a_loop_uses_the_new_body_of_a_function_inlined_from_another_file(tmp_path: Path) -> None:
    """In a copy of the compiling code, with two more files."""
    root = Path(__file__).parents[2]
    copied = tmp_path / "cephfit"
    copied.mkdir()
    for file in (root / "cephfit").glob("*.py"):
        (copied / file.name).write_bytes(file.read_bytes())
    (copied / "traces").mkdir()
    (copied / "traces" / "__init__.py").touch()
    (copied / "traces" / "compiled.py").write_bytes((root / "traces" / "compiled.py").read_bytes())
    inner, outer = copied / "traces" / "inner.py", copied / "traces" / "outer.py"
    outer.write_text(
        "from cephfit.traces.compiled import compiled\nfrom cephfit.traces.inner import inner\n\n\n"
        "@compiled\ndef outer(x):\n    return inner(x)\n"
    )

    def output() -> str:
        program = "from cephfit.traces.outer import outer; print(outer(1))"
        argv = [sys.executable, "-c", program]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    head = "from cephfit.traces.compiled import inlined\n\n\n@inlined\ndef inner(x):\n"
    inner.write_text(f"{head}    return x + 1\n")
    assert output() == "2\n"
    assert list((copied / "traces" / "__pycache__").glob("loops-*/**/*.nbi")), "it is kept"
    inner.write_text(f"{head}    return x + 10\n")
    assert output() == "11\n"


PROFILE = [sys.executable, "-m", "cephfit.cli.main", "trace", "profile", "--json"]


def profile(trace: Path, cache: Path) -> tuple["subprocess.CompletedProcess[str]", float]:
    began = time.monotonic()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([*PROFILE, str(trace)], capture_output=True, text=True, timeout=300, env=environment)
    return done, time.monotonic() - began


@pytest.mark.slow
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
