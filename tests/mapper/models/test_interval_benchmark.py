"""The benchmark behind the tables of docs/evidence.md: it runs, and it prints the rows of that document."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "benchmarks" / "interval_coverage.py"


def printed(table: str) -> str:
    command = [sys.executable, str(SCRIPT), "--table", table, "--sweeps", "2"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.parametrize(
    ("table", "named_by", "n_rows"),
    [
        ("says", 1, 8 + 4 + 3),
        pytest.param("unbalanced", 1, 4, marks=pytest.mark.slow),
        pytest.param("power", 2, 8, marks=pytest.mark.slow),
        ("lost", 1, 6 + 2),
    ],
)
def test_the_evidence_shows_every_row_that_the_benchmark_prints(table: str, named_by: int, n_rows: int) -> None:
    def names(text: str) -> list[tuple[str, ...]]:
        rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
        return [tuple(row[:named_by]) for row in rows]

    rows = names(printed(table))
    n_headings = {"says": 3, "unbalanced": 1, "power": 1, "lost": 2}[table]
    assert len(rows) == n_rows + n_headings
    assert set(rows) <= set(names((ROOT / "docs" / "evidence.md").read_text()))


@pytest.mark.slow
def test_the_same_seed_prints_the_same_figures() -> None:
    assert printed("power") == printed("power")
