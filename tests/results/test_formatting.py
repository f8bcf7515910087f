"""Numbers as people read them: none that says something else than the value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.results.report import formatting


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (100.0, "100"),
        (100.3, "100.3"),
        (99.96, "100"),
        (99.94, "99.9"),
        (100.001, "100"),
        (188.4, "188"),
        (4.26, "4.3"),
        (0.02, "0.02"),
    ],
)
def test_relative_figures(value: float, text: str) -> None:
    assert formatting.relative(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (100.0, "1.00"),
        (100.3, "1.003"),
        (99.96, "0.9996"),
        (190.0, "1.90"),
        (4.2, "0.042"),
        (0.04, "0.00040"),
        (999.9, "10.0"),
    ],
)
def test_factors(value: float, text: str) -> None:
    assert formatting.times(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (999.96, "1,000"),
        (1234.5, "1,234"),
        (999.94, "999.9"),
        (99.996, "100.0"),
        (65.5, "65.50"),
        (0.00004, "0.0000400"),
        (0.5, "0.500"),
        (3, "3"),
        (0.0, "0"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert formatting.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.004, "0.004"), (0.25, "0.25"), (2.39, "2.39"), (65.5, "65.5"), (493.0, "493"), (12345.0, "12.3k")],
)
def test_rates_in_narrow_columns(value: float, text: str) -> None:
    assert formatting.compact(value) == text


@pytest.mark.parametrize(
    ("factor", "text"),
    [(1.07, "±7.0"), (1.1234, "±12"), (1.0003, "±<0.1"), (1.0, "±<0.1"), (3.4, "±240"), (90.0, "±>999")],
)
def test_widths_of_intervals(factor: float, text: str) -> None:
    assert formatting.plus_minus(factor) == text


def test_a_level_below_one_is_not_a_hundred_per_cent() -> None:
    assert [formatting.level(c) for c in (0.95, 0.996, 0.9973, 0.9999)] == ["95 %", "99.6 %", "99.73 %", "99.99 %"]


@given(st.floats(min_value=1e-6, max_value=1e6).filter(lambda v: abs(v - 100) >= 0.0051))
def test_what_is_better_never_reads_as_equal(value: float) -> None:
    low, high = formatting.interval(value, value).split(" to ")
    for text, mark in ((low, 100), (high, 100), (formatting.times(value), 1)):
        assert (plain(text) > mark, plain(text) < mark) == (value > 100, value < 100)


@given(st.floats(min_value=1e-9, max_value=1e12))
def test_no_number_loses_its_size(value: float) -> None:
    assert plain(formatting.number(value)) == pytest.approx(value, rel=5e-3)
    assert "e" not in formatting.number(value)


def plain(text: str) -> float:
    """Read a number with its thousands grouped."""
    return float(text.replace(",", ""))


def test_names_of_nothing() -> None:
    assert [formatting.names(["a", "b", "c"][:n]) for n in range(4)] == ["none", "a", "a and b", "a, b and c"]
