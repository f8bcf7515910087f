"""Tables of the thesis, where this machine has them."""

import csv
import os
from pathlib import Path

import pytest


def thesis_table(name: str) -> list[dict[str, str]]:
    """The rows of a table; the test is skipped where the machine has none."""
    samples = os.environ.get("CEPHFIT_SAMPLES")
    table = Path(samples).parent / "reference" / name if samples else None
    if table is None or not table.exists():
        pytest.skip("the thesis's tables are not on this machine (CEPHFIT_SAMPLES)")
    return list(csv.DictReader(line for line in table.read_text().splitlines() if not line.startswith("#")))
