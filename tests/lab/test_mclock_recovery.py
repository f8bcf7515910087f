"""The table of benchmarks/mclock_recovery.py, from runs with known rates."""

import numpy as np
import pytest

from benchmarks.mclock_recovery import COLUMNS, SCHEDULERS, STATES, Ratio, Row, rows_of, table_of

RATES = {
    "whole": {"wpq": 1000.0, "high_client_ops": 1000.0, "balanced": 1000.0, "high_recovery_ops": 1000.0},
    "recovering": {"wpq": 600.0, "high_client_ops": 900.0, "balanced": 600.0, "high_recovery_ops": 300.0},
}


def runs(n: int, *, noise: float = 0.01) -> list[dict[str, str]]:
    """Runs of these true rates; the noise of a round is common to its runs."""
    rng = np.random.default_rng(18)
    found = []
    for number in range(n):
        common = np.exp(rng.normal(0, 0.3))
        for state in STATES:
            for scheduler in SCHEDULERS:
                iops = RATES[state][scheduler] * common * np.exp(rng.normal(0, noise))
                recovered = "40" if state == "recovering" else "0"
                values = (str(number), scheduler, state, "4K-randread", str(iops), "5", recovered)
                found.append(dict(zip(COLUMNS, values, strict=True)))
    return found


def row(rows: list[Row], scheduler: str, state: str) -> Row:
    return next(r for r in rows if (r.scheduler, r.state) == (scheduler, state))


def contains(ratio: Ratio | None, value: float) -> bool:
    assert ratio is not None and ratio.interval is not None
    return ratio.interval[0] < value < ratio.interval[1] < ratio.interval[0] * 1.1


def test_schedulers_are_compared_in_pairs_of_rounds() -> None:
    """Rounds differ by 30 %, pairs by 1 %: only paired intervals are this narrow."""
    rows = rows_of(runs(6))
    first = row(rows, "high_client_ops", "recovering")
    assert contains(first.against_reference, 1.5) and contains(first.against_whole, 0.9)
    assert contains(row(rows, "high_recovery_ops", "whole").against_reference, 1.0)
    reference = row(rows, "wpq", "recovering")
    assert reference.against_reference is None and contains(reference.against_whole, 0.6)


def test_a_run_during_which_recovery_ended_is_missing_in_its_row_only() -> None:
    every = [r for r in runs(3) if (r["round"], r["scheduler"], r["state"]) != ("1", "balanced", "recovering")]
    rows = rows_of(every)
    assert row(rows, "balanced", "recovering").n_rounds == 2
    assert row(rows, "balanced", "whole").n_rounds == row(rows, "wpq", "recovering").n_rounds == 3
    without = [r for r in every if (r["scheduler"], r["state"]) != ("wpq", "recovering")]
    assert row(rows_of(without), "balanced", "recovering").against_reference is None


def test_a_single_round_has_ratios_without_an_interval() -> None:
    ratio = row(rows_of(runs(1, noise=0.0)), "high_client_ops", "recovering").against_reference
    assert ratio is not None and ratio.interval is None
    assert ratio.mean == pytest.approx(1.5)
    assert str(ratio) == "1.50"


def test_the_table_has_a_line_for_each_scheduler_and_state() -> None:
    lines = table_of(rows_of(runs(2))).splitlines()
    assert len(lines) == 2 + len(SCHEDULERS) * len(STATES)
    assert {line.count("|") for line in lines} == {10}
    assert lines[2].startswith("| 4K-randread | whole | wpq | 2 |") and lines[2].endswith("| - | - | - |")
