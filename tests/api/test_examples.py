"""The notebooks of docs/examples and the code of docs/python.md run, and find the parameters of the simulation."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def run(folder: Path, *argv: str) -> str:
    done = subprocess.run(
        [sys.executable, *argv], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_notebook_goes_from_a_trace_to_a_recommendation(tmp_path: Path) -> None:
    said = run(tmp_path, str(DOCS / "examples" / "trace_to_recommendation.py"))
    assert "best: ssd, +" in said
    assert "worst: journaling" in said
    assert "not distinguishable from the best: none" in said
    assert "4K-randread: " in said
    assert "note: SIMULATED: these figures come from a model, not from a disk" in said
    assert (tmp_path / "database.json").is_file()


def test_the_second_notebook_assesses_predictions(tmp_path: Path) -> None:
    said = run(tmp_path, str(DOCS / "examples" / "assess_predictions.py"), str(DOCS / "examples" / "profiles"))
    assert "median_error_pct" in said
    best = re.search(r"^0 +ssd +(?P<predicted>[0-9.]+) +(?P<measured>[0-9.]+)", said, re.MULTILINE)
    assert best, said
    assert float(best["measured"]) == pytest.approx(float(best["predicted"]), rel=0.1)


def test_the_notebooks_are_in_percent_format() -> None:
    for name in ("trace_to_recommendation.py", "assess_predictions.py"):
        cells = re.split(r"^# %%", (DOCS / "examples" / name).read_text(), flags=re.MULTILINE)
        assert cells[0] == ""
        assert len(cells) > 8
        for cell in cells[1:]:
            first, *lines = cell.splitlines()
            if first.strip() == "[markdown]":
                assert all(line.startswith("#") or not line for line in lines)


def test_the_code_of_the_page_runs_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / "python.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    (tmp_path / "docs").symlink_to(DOCS)
    said = run(tmp_path, "-c", "\n".join(blocks))
    assert "ssd journaling" in said
    assert "there is no model 'tea leaves' | choose from: waiting, time, meyer" in said
