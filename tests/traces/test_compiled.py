"""Loops that were compiled before the code changed are not used after it."""

import os
import subprocess
import sys
from pathlib import Path

from cephfit.traces.compiled import _with_imports, version_of


def test_the_version_of_a_loop_changes_only_with_what_it_imports(tmp_path: Path) -> None:
    loop = tmp_path / "loop.py"
    loop.write_text(
        "from cephfit.core.values.access import (\n    OP_READ,\n)\nfrom cephfit.traces.lines import plain_lines\n"
    )
    read = {file.name for file in _with_imports(loop)}
    assert {"loop.py", "access.py", "plain_lines.py", "compiled.py", "delimited_loop.py"} <= read
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
