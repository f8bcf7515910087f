"""The table of benchmarks/two_clusters.py, from runs with known rates."""

import numpy as np
import pytest

from benchmarks.two_clusters import LOADS, PLACEMENTS, rows_of, table_of


def runs(
    one: tuple[float, float], split: tuple[float, float], *, noise: float, n: int = 8
) -> list[dict[str, str]]:
    """Runs of tenants with these true rates; noise of a round is common to its placements."""
    rng = np.random.default_rng(1)
    found = []
    for number in range(n):
        common = np.exp(rng.normal(0, 0.3))
        for load, tenants in LOADS.items():
            for placement, rates in zip(PLACEMENTS, (one, split), strict=True):
                for tenant in tenants:
                    rate = rates[tenant] * common * np.exp(rng.normal(0, noise))
                    values = (str(number), "4K-randread", load, placement, str(tenant), str(rate))
                    found.append(
                        dict(zip(("round", "cell", "load", "placement", "tenant", "iops"), values, strict=True))
                    )
    return found


def test_total_and_slower_tenant_are_compared_in_pairs_of_rounds() -> None:
    """Rounds differ by 30 %, pairs by 1 %: only paired intervals are this narrow."""
    rows = {row.load: row for row in rows_of(runs((900.0, 300.0), (500.0, 500.0), noise=0.01))}
    both = rows["both"]
    assert both.total.low < 1000 / 1200 < both.total.high
    assert both.worse.low < 500 / 300 < both.worse.high
    assert both.total.high / both.total.low < 1.05
    first = rows["first"]
    assert first.total == first.worse
    assert first.total.low < 500 / 900 < first.total.high


def test_a_round_that_was_cut_off_does_not_count() -> None:
    every = runs((900.0, 300.0), (500.0, 500.0), noise=0.01, n=4)
    assert {row.n_rounds for row in rows_of(every)} == {4}
    assert [row.n_rounds for row in rows_of(every[:-1])] == [4, 3]
    with pytest.raises(ValueError, match="4K-randread under first has 2 complete rounds"):
        rows_of(every[:-7])


def test_intervals_contain_the_true_ratio_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    n_inside = 0
    for _ in range(400):
        found = []
        for number in range(4):
            for placement, mean in zip(PLACEMENTS, (100.0, 130.0), strict=True):
                rate = mean * np.exp(rng.normal(0, 0.1))
                found.append(
                    {"round": str(number), "cell": "c", "load": "first", "placement": placement, "iops": str(rate)}
                )
        (row,) = rows_of(found)
        n_inside += row.total.low <= 1.3 <= row.total.high
    assert 0.92 <= n_inside / 400 <= 0.98


def test_the_table_has_a_line_for_each_cell_and_load() -> None:
    lines = table_of(rows_of(runs((900.0, 300.0), (500.0, 500.0), noise=0.0))).splitlines()
    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {9}
    assert "| 4K-randread | both |" in lines[2] and " 0.83 [" in lines[2]
