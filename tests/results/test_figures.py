"""Scales, heat map and histograms."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from example_run import CONFIGURATIONS, example_profile, example_samples, truth
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.values.assessment import Assessment, AssessmentRow
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, Cell, LoadedCell, Op, Pattern
from cephfit.core.values.profile import Profile
from cephfit.results.report import formatting
from cephfit.results.report.figures.cell_figures import (
    HEAT_CONFIDENCE,
    colour_level,
    heat_map_of,
    loaded_rates_of,
)
from cephfit.results.report.figures.report_figures import histograms_of, verification_of, workload_figure
from cephfit.results.report.formatting import Axis, growth_axis, relative_axis
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.results.statistics.summary_statistics import AgainstDefault

figures = st.floats(min_value=0.5, max_value=5000)


@given(st.lists(st.tuples(figures, st.floats(min_value=0, max_value=1)), max_size=20))
def test_every_figure_and_the_default_are_on_the_scale_in_order(rows: list[tuple[float, float]]) -> None:
    centres = [centre for centre, _ in rows]
    axis = relative_axis(centres, [c * (1 - half) for c, half in rows] + [c * (1 + half) for c, half in rows])
    assert not any(axis.cuts(value) for value in (100.0, *centres))
    positions = [axis.at(value) for value in sorted({100.0, *centres})]
    assert positions == sorted(positions) and positions[0] >= 0 and positions[-1] <= 100
    assert len(axis.ticks) <= 10 and all(axis.low <= tick <= axis.high for tick in axis.ticks)


def test_an_interval_that_says_nothing_does_not_press_the_rest_together() -> None:
    axis = relative_axis([90.0, 120.0], [0.0, 1e9])
    assert axis.cuts(1e9) and axis.at(1e9) == 100
    assert axis.at(120.0) - axis.at(90.0) > 10


def test_half_and_double_look_alike_on_a_wide_scale() -> None:
    axis = relative_axis([25.0, 400.0], [])
    assert axis.logarithmic and 100 in axis.ticks
    assert axis.at(200) - axis.at(100) == pytest.approx(axis.at(100) - axis.at(50), abs=0.01)
    assert not relative_axis([95.0, 110.0], []).logarithmic


def label_gaps(axis: Axis, labels: Sequence[str], width_px: float) -> list[float]:
    """Pixels between neighbouring labels of a scale, in the style's letters of 11 px."""
    ends = [
        (axis.at(tick) * width_px / 100, 3.1 * len(text)) for tick, text in zip(axis.ticks, labels, strict=True)
    ]
    return [b - half_b - (a + half_a) for (a, half_a), (b, half_b) in pairwise(ends)]


@given(st.lists(st.floats(min_value=1e-3, max_value=1e8), min_size=1, max_size=4))
def test_labels_of_a_logarithmic_scale_never_touch(centres: list[float]) -> None:
    """200 px is the width that is left in a table with many columns; on a phone the scale is wider."""
    axis = relative_axis(centres, [])
    labels = list(map(formatting.relative, axis.ticks))
    assert not axis.logarithmic or (len(labels) >= 2 and min(label_gaps(axis, labels, 200)) >= 7.9)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1, 2, 4, 8, 16, 32], [1, 2, 4, 8, 16, 32]),
        (range(1, 17), [1, 2, 3, 4, 5, 6, 8, 10, 13, 16]),
        ([7, 8], [7, 8]),
    ],
)
def test_labels_of_a_growing_scale_never_touch(values: Sequence[int], shown: list[int]) -> None:
    axis = growth_axis(map(float, values))
    assert list(axis.ticks) == shown
    assert min(label_gaps(axis, [f"{tick:,.0f}" for tick in axis.ticks], 340)) >= 7.9


@given(st.floats(min_value=1, max_value=10000))
def test_up_and_down_have_the_same_strength_of_colour(relative: float) -> None:
    assert abs(colour_level(relative) + colour_level(100 * 100 / relative)) <= 1  # at a limit rounding decides
    assert colour_level(relative) * (relative - 100) >= 0


def test_the_heat_map_finds_the_truth() -> None:
    """Every effect above 25 % is coloured on its side; of the cells without effect few are coloured."""
    baselines = baselines_of((s for group in example_samples() for s in group), source="a test")
    heat = heat_map_of(baselines, {})
    assert heat is not None
    columns = [(pattern, size) for pattern, sizes in heat.groups for size in sizes]
    assert len(columns) == 20 and [name for name, _ in heat.rows] == [
        name for name in baselines.configurations if name != "A"
    ]
    names = {"sequential read": "read", "sequential write": "write", "random read": "randread"}
    false_alarms = 0
    for name, row in heat.rows:
        for (pattern, size), shown in zip(columns, row, strict=True):
            cell = Cell.parse(f"{size}-{names.get(pattern, 'randwrite')}")
            effect = truth(name, cell)
            if (name, cell) in baselines.missing:
                assert shown.text == "–" and "No space left" in shown.title
            elif not 0.8 < effect < 1.25:
                assert shown.distinguishable and shown.level * (effect - 1) > 0, (name, str(cell))
                assert "99 % interval" in shown.title and "CV" in shown.title
            elif effect == 1:
                false_alarms += shown.distinguishable
    assert false_alarms <= 4
    assert 1.0 < (heat.spread_pct or 0) < 4.0  # 3 % noise per client, two clients summed: about 2.1 %


def test_every_square_has_its_interval_in_print() -> None:
    """On paper there are no tooltips."""
    baselines = baselines_of((s for group in example_samples() for s in group), source="a test")
    against, heat = AgainstDefault.of(baselines), heat_map_of(baselines, {})
    assert heat is not None
    cells = [cell for pattern in Pattern for cell in CELLS if cell.pattern is pattern]
    for name, row in heat.rows:
        for cell, shown in zip(cells, row, strict=True):
            interval = against.interval(name, cell, HEAT_CONFIDENCE)
            ratio = against.ratio(name, cell)
            if interval is None or ratio is None:
                assert shown.width == "" and (name, cell) in baselines.missing
                continue
            pct = float(shown.width.lstrip("±"))
            assert ratio * (1 + pct / 100) == pytest.approx(interval.high, rel=0.01)
            assert ratio / (1 + pct / 100) == pytest.approx(interval.low, rel=0.01)


def test_without_repeats_nothing_is_distinguishable() -> None:
    cells = {(name, CELLS[0]): Baseline(name, CELLS[0], (iops,)) for name, iops in (("A", 10.0), ("B", 99.0))}
    heat = heat_map_of(Baselines(cells, "a test"), {})
    assert heat is not None and heat.spread_pct is None
    shown = heat.rows[0][1][0]
    assert (shown.text, shown.level, shown.distinguishable, shown.width) == ("990", 0, False, "")


def test_without_the_default_there_is_nothing_to_compare_with() -> None:
    heat = heat_map_of(Baselines({("B", CELLS[0]): Baseline("B", CELLS[0], (1.0, 2.0))}, "a test"), {})
    assert heat is not None and heat.rows[0][1][0].text == "–"
    assert "the default was not measured here" in heat.rows[0][1][0].title
    assert heat_map_of(Baselines({}, "a test"), {}) is None


def test_rows_follow_the_order_that_is_asked_for() -> None:
    baselines = baselines_of((s for group in example_samples() for s in group), source="a test")
    heat = heat_map_of(baselines, {}, ["throttled", "A", "hybrid"])
    assert heat is not None
    names = [name for name, _ in heat.rows]
    assert names[:2] == ["throttled", "hybrid"] and set(names) == set(CONFIGURATIONS) - {"A"}


def test_the_workload_figure_holds_every_access_once() -> None:
    profile = example_profile()
    figure = workload_figure(profile)
    assert figure is not None
    assert sum(share for bar in figure.bars for share in bar.shares) == pytest.approx(1)
    assert [bar.label for bar in figure.bars] == ["4K", "32K", "128K", "1M", "32M"]
    empty = Profile("none", {op: dict.fromkeys(figure_names(), 0) for op in Op}, dict.fromkeys(Op, 0.0))
    assert workload_figure(empty) is None


def figure_names() -> list[str]:
    return ["4K", "32K", "128K", "1M", "32M"]


def described(histograms: object) -> Profile:
    counts = {op: dict.fromkeys(figure_names(), 1) for op in Op}
    return Profile("p", counts, dict.fromkeys(Op, 0.0), None, {"histograms": histograms})


def test_histograms_come_in_a_fixed_order_with_readable_limits() -> None:
    found = histograms_of(example_profile())
    assert [f.title for f in found] == ["Size of accesses", "Seek distance", "Latency", "Outstanding accesses"]
    size, seek, latency, _ = found
    assert size.series == ("read", "write") and "4K" in [bar.label for bar in size.bars]
    assert "−500k" in [bar.label for bar in seek.bars]
    assert {"100 µs", "1 ms", "> 100 ms"} <= {bar.label for bar in latency.bars}


def test_the_distance_within_a_window_is_not_called_the_distance() -> None:
    one = {"limits": [1, 2], "counts": [3, 1, 0]}
    found = histograms_of(described({"windowed_distance": {"all": one}, "distance": {"all": one}}))
    assert [figure.title for figure in found] == ["Seek distance", "Seek distance, windowed"]


def test_empty_ends_are_cut_and_all_is_used_where_reads_and_writes_are_not_told_apart() -> None:
    one = {"limits": [1, 2, 4, 8, 16], "counts": [0, 0, 3, 1, 0, 0]}
    (figure,) = histograms_of(described({"outstanding": {"all": one}}))
    assert figure.series == ("all",)
    assert [bar.label for bar in figure.bars] == ["2", "4", "8", "16"]
    assert [bar.counts for bar in figure.bars] == [(0,), (3,), (1,), (0,)]


@pytest.mark.parametrize(
    "strange",
    [None, [], {"size": None}, {"size": {"read": {"limits": [1], "counts": [1]}}}, {"size": {"read": 3}},
     {"size": {"all": {"limits": [1], "counts": [0, 0]}}},
     {"size": {"read": {"limits": [4096], "counts": ["a", 1]}}},
     {"size": {"read": {"limits": ["x"], "counts": [1, 1]}}},
     {"size": {"read": {"limits": [4096], "counts": [1, -1]}}},
     {"size": {"read": {"limits": [1], "counts": [1, 10**400]}}},
     {"size": {"read": {"limits": [float("nan")], "counts": [1, 1]}}}],
)  # fmt: skip
def test_histograms_that_cannot_be_read_are_left_out(strange: object) -> None:
    assert histograms_of(described(strange)) == ()


def test_numbers_are_written_for_people() -> None:
    assert [formatting.relative(v) for v in (None, 184.4, 3.21, float("inf"))] == ["–", "184", "3.2", "∞"]
    assert [formatting.times(v) for v in (184.0, 3.2, 1234.0)] == ["1.84", "0.032", "12.3"]
    assert formatting.interval(None, None) == "–" and formatting.interval(90, float("inf")) == "above 90"
    assert (
        formatting.interval(float("-inf"), float("inf")) == "unknown"
        and formatting.interval(None, 90) == "below 90"
    )
    assert [formatting.points(v) for v in (None, 0.01, 72.6, -3.14)] == ["–", "0", "+73", "−3.1"]
    assert [formatting.number(v) for v in (793, 65132)] == ["793", "65,132"]
    assert [formatting.number(v) for v in (12345.6, 412.34, 2.345, 0.724)] == ["12,346", "412.3", "2.35", "0.724"]
    assert [formatting.compact(v) for v in (123456, 12345, 493.5, 65.53, 2.394)] == [
        "123k",
        "12.3k",
        "494",
        "65.5",
        "2.39",
    ]
    assert [formatting.per_cent(v) for v in (0.0, 0.0001, 0.021, 0.53)] == ["0 %", "< 0.1 %", "2.1 %", "53 %"]
    assert formatting.names(["a"]) == "a" and formatting.names(["a", "b", "c"]) == "a, b and c"


def test_what_100_stands_for_is_the_defaults_own_geometric_mean() -> None:
    """Ratios are of geometric means with rounds taken out; no other row's runs may move what the default is."""
    rows = (
        AssessmentRow("B", 120.0, 110.0, 130.0, 141.4, 100.1, 199.8, (100.0, 200.0)),
        AssessmentRow("A", 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, (50.0, 200.0)),
    )
    shown = verification_of(Assessment("pgbench", "tps", "time", rows, None, 0.0))
    assert shown is not None
    assert shown.default_mean == pytest.approx(100)
    assert shown.scale == "100.0 tps, the geometric mean of its 2 runs"


def test_rates_of_other_sizes_and_depths_are_shown_with_their_intervals() -> None:
    own = Cell.parse("4K-randread")
    deep, odd = LoadedCell(4096, Pattern.RANDREAD, iodepth=16), LoadedCell(65536, Pattern.RANDWRITE)
    of_default = {LoadedCell(4096, Pattern.RANDREAD): (99.0, 101.0), deep: (400.0, 402.0), odd: (50.0, 51.0)}
    loaded = {("A", cell): Baseline("A", cell.bin_cell, iops) for cell, iops in of_default.items()}
    loaded |= {("fast", c): Baseline("fast", c.bin_cell, (2 * a, 2 * b)) for c, (a, b) in of_default.items()}
    loaded["slow", odd] = Baseline("slow", odd.bin_cell, (25.0, 25.5))
    cells = {(name, own): loaded[name, LoadedCell(4096, Pattern.RANDREAD)] for name in ("A", "fast")}
    found = loaded_rates_of(Baselines(cells, "a test", loaded=loaded), ["slow", "A", "fast"])
    assert found is not None
    assert found.names == ("slow", "fast")
    rows = {title: (rate, dict(zip(found.names, cells, strict=True))) for title, rate, cells in found.rows}
    assert list(rows) == [str(deep), str(odd)], "the cell of the load itself is in the map above"
    assert rows[str(deep)][0] == "401"
    assert rows[str(deep)][1]["fast"].text == "200" and rows[str(deep)][1]["fast"].distinguishable
    assert rows[str(deep)][1]["slow"].title == f"slow, {deep}: not measured"
    assert rows[str(odd)][1]["slow"].text == "50" and rows[str(odd)][1]["slow"].level < 0
    assert loaded_rates_of(Baselines(cells, "a test")) is None
