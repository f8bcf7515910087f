"""The commands of docs/how-to-capacity.md run as they are written, and print what it says."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from cephfit.cli.main import cephfit

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "how-to-capacity.md"
COMMAND = re.compile(r"^(?: {4}|\$ )?(cephfit (?:[^\n\\]|\\\n)*)\n(.*)", re.MULTILINE)
"""A command, also over several lines, and the line after it."""


def test_every_command_of_the_document_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = COMMAND.findall(DOCUMENT.read_text())
    assert [shlex.split(text)[1] for text, _ in commands] == ["sweep", "capacity", "capacity", "capacity"]
    for text, printed in commands:
        done = CliRunner().invoke(cephfit, shlex.split(text.replace("\\\n", " "))[1:], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        if printed.startswith("fits"):
            assert done.stdout.startswith(printed)
    assert {path.name for path in tmp_path.iterdir()} >= {"capacity.sqlite", "capacity.csv", "capacity.html"}
