"""The comparison of the engine `micro` with fio: the same operations, and the ratio of their figures."""

from pathlib import Path

import pytest

from benchmarks.micro_against_fio import CASES, Case, by_fio, by_micro, lines


def test_a_ratio_has_the_scatter_of_its_rounds() -> None:
    table = list(lines({"x": {"micro": [90.0, 180.0, 45.0], "fio": [100.0, 200.0, 50.0]}}))
    assert table[-1] == "| x | 105 | 117 | 0.9 (0.9 to 0.9) |", "the rounds differ, their ratios do not"
    assert list(lines({"x": {"micro": [90.0], "fio": [100.0]}}))[-1].endswith("| 0.9 |")


@pytest.mark.fio
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_both_programs_do_each_operation(case: Case, tmp_path: Path) -> None:
    assert by_micro(case, tmp_path, 0.2, 1) > 0
    assert by_fio(case, tmp_path, 1, 1) > 0
    assert not list(tmp_path.glob("of-fio/*")), "files of fio are deleted"
