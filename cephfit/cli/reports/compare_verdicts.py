"""The verdicts of `cephfit compare` as text and JSON, and whether they end a script with exit code 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cephfit.core.errors import InputError

if TYPE_CHECKING:
    from cephfit.core.values.run import Run
    from cephfit.results.statistics.comparison import Row, Served, TargetFigures

FAILURES = ("worse", "different", "missing")
"""Choices of --fail-on."""


def failures(fail_on: Sequence[str], compared: Sequence[Row | Served], store: str) -> list[str]:
    """Return the choices of --fail-on that apply.

    Args:
        fail_on: choices of the user.
        compared: with verdicts.
        store: its name, for the error.

    Raises:
        InputError: a choice was made, but no rate could be compared, so that the answer would be empty.
    """
    from cephfit.results.statistics.comparison import Change, count_changes

    counts = count_changes(one.by_target for one in compared)
    if fail_on and not counts.total() - counts[Change.UNKNOWN]:
        raise InputError(
            "no rate of these runs can be compared: they share no cell, or nothing was measured twice",
            where=f"{store}, --fail-on",
            remedy="measure the same sweep on both, with `repeats: 2` or more",
        )
    applies = {
        "worse": counts[Change.WORSE] > 0,
        "different": counts[Change.WORSE] + counts[Change.BETTER] > 0,
        "missing": counts[Change.UNKNOWN] > 0,
    }
    return [choice for choice in FAILURES if choice in fail_on and applies[choice]]


def verdict_lines(rows: Sequence[Row], served: Sequence[Served]) -> list[str]:
    """Return the numbers of verdicts of each target as sentences, cells before workloads."""
    from cephfit.results.statistics.comparison import Change, count_changes

    lines = []
    for what, compared in (("cells", rows), ("workloads and configurations", served)):
        for i in range(1, len(compared[0].by_target) if compared else 1):
            counts = count_changes((one.by_target[0], one.by_target[i]) for one in compared)
            parts = [f"{counts[c]} {c}" for c in Change if counts[c] or c is Change.WORSE]
            lines.append(f"Target {i + 1} against target 1, of {counts.total()} {what}: {', '.join(parts)}.")
    return lines


def verdict_document(figures: TargetFigures) -> dict[str, Any]:
    """Return the verdict on one figure; ``differs`` is that of its interval by itself."""
    return {
        "differs": figures.differs,
        "p_value": figures.p_value,
        "adjusted_p": figures.adjusted_p,
        "verdict": figures.change.value if figures.ratio else None,
    }


def release_of(run: Run) -> str:
    """Return the release of Ceph that a run measured, as the end of a sentence; empty if it is unknown."""
    from cephfit.operations.recommended import version_of

    version = version_of(run.facts)
    return f", Ceph {version}" if version else ""
