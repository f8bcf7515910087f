"""Verdicts on many compared cells and workloads, corrected for their number. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from cephfit.results.statistics.comparison import Change, Row, Served, TargetFigures
from cephfit.results.statistics.summary_statistics import holm_adjusted


def with_verdicts(rows: Sequence[Row], served: Sequence[Served]) -> tuple[tuple[Row, ...], tuple[Served, ...]]:
    """Adjust the p values of all cells and workloads as one family, by Holm's method.

    So the chance that any of them is wrongly called better or worse is at most the significance level.
    """
    figures = [one for row in rows for one in row.by_target]
    figures += [one for workload in served for one in workload.by_target]
    adjusted = iter(holm_adjusted([one.p_value for one in figures if one.p_value is not None]))
    judged = iter([one if one.p_value is None else replace(one, adjusted_p=next(adjusted)) for one in figures])
    return (
        tuple(replace(row, by_target=tuple(next(judged) for _ in row.by_target)) for row in rows),
        tuple(replace(one, by_target=tuple(next(judged) for _ in one.by_target)) for one in served),
    )


def count_changes(by_targets: Iterable[Sequence[TargetFigures]]) -> Counter[Change]:
    """Return how often each verdict occurs; the first target, with which the others are compared, has none."""
    return Counter(figures.change for by_target in by_targets for figures in by_target[1:])
