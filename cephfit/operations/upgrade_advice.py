"""What an upgrade of Ceph does to workloads: runs of one sweep on several releases, compared with the first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cephfit.ceph.options.option_archive import ActsOn, DifferingDefault, catalogues_of, differing_defaults
from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import CLUSTER, PROBE_PREFIX, Run, State, WorkloadSample, is_another_cluster
from cephfit.operations.recommended import version_of
from cephfit.results.report import formatting
from cephfit.results.statistics import summary_statistics
from cephfit.results.statistics.comparison import CellPart, Change, Row, Served, TargetFigures, cell_parts
from cephfit.results.statistics.scaling import Level

_SHOWN_CELLS = 4
_SHARE_OF_A_CELL = 0.01
"""Least share of a workload's time that a cell must have to be named."""
_APART_NS = 3600 * 10**9
"""Runs that began farther apart were not measured at the same time."""


@dataclass(frozen=True, slots=True)
class WorkloadOutcome:
    """What each release does to one workload.

    Attributes:
        served: its rate on each target, with verdicts.
        parts: for each target its cells by their effect; empty for the first target, or without a rate.
    """

    served: Served
    parts: tuple[tuple[CellPart, ...], ...]


@dataclass(frozen=True, slots=True)
class RealRuns:
    """Runs of a real workload on the first target and on another one.

    Attributes:
        workload: its name.
        target: number of the other target, counted from 0.
        metric: such as ``tps``; more is better.
        before: on the first target.
        after: on the other one.
        ratio: after / before.
    """

    workload: str
    target: int
    metric: str
    before: Level
    after: Level
    ratio: Level


@dataclass(frozen=True, slots=True)
class UpgradeAdvice:
    """The comparison of releases for workloads.

    Attributes:
        labels: of the targets: ``Ceph 18.2.7``, with the target's name where several have this version.
        runs: of the targets.
        configuration: that is compared.
        outcomes: one per workload.
        defaults: that differ between the releases and act on speed.
        default_versions: releases of ``defaults``, in the order of its values.
        real: runs of real workloads.
        untested: what this comparison does not cover, as sentences.
    """

    labels: tuple[str, ...]
    runs: tuple[Run, ...]
    configuration: str
    outcomes: tuple[WorkloadOutcome, ...]
    defaults: tuple[DifferingDefault, ...]
    default_versions: tuple[str, ...]
    real: tuple[RealRuns, ...]
    untested: tuple[str, ...]

    def explaining(self) -> tuple[DifferingDefault, ...]:
        """Return the defaults that may explain cells that moved; empty if none moved.

        Defaults for writes count only if a cell of writes moved.
        """
        moved = {part.cell.pattern.op for o in self.outcomes for parts in o.parts for part in parts if part.moved}
        acts_on = {ActsOn.ALL, ActsOn.UNKNOWN} if moved else set()
        acts_on |= {ActsOn.WRITES} if Op.WRITE in moved else set()
        return tuple(default for default in self.defaults if default.acts_on in acts_on)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values; the rates are in the document of the comparison itself."""
        return {
            "configuration": self.configuration,
            "releases": list(self.labels),
            "workloads": [
                {
                    "workload": outcome.served.workload,
                    "answer": answer_of(outcome, self.labels),
                    "cells": [[_part_document(part) for part in parts] for parts in outcome.parts],
                }
                for outcome in self.outcomes
            ],
            "defaults": [
                {
                    "option": default.name,
                    "values": dict(zip(self.default_versions, default.values, strict=True)),
                    "acts_on": default.acts_on.value,
                    "what": default.what,
                }
                for default in self.defaults
            ],
            "real_workloads": [
                {
                    "workload": one.workload,
                    "release": self.labels[one.target],
                    "metric": one.metric,
                    "before": one.before.mean,
                    "after": one.after.mean,
                    "ratio": one.ratio.mean,
                    "low": one.ratio.interval.low if one.ratio.interval else None,
                    "high": one.ratio.interval.high if one.ratio.interval else None,
                }
                for one in self.real
            ],
            "not_tested": list(self.untested),
        }


def _part_document(part: CellPart) -> dict[str, Any]:
    return {
        "cell": str(part.cell),
        "share": part.share,
        "effect": part.effect,
        "ratio": part.figures.ratio.mean if part.figures.ratio else None,
        "verdict": part.figures.change.value,
    }


def versions_of(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the distinct releases that runs measured, in their order; those without a known one are omitted."""
    return tuple(dict.fromkeys(version for run in runs if (version := version_of(run.facts))))


def advise_upgrade(
    runs: Sequence[Run],
    profiles: Sequence[Profile],
    rows: Sequence[Row],
    served: Sequence[Served],
    workload_samples: Sequence[Sequence[tuple[str, WorkloadSample]]],
    configuration: str,
) -> UpgradeAdvice:
    """Compare releases for workloads under one configuration.

    Args:
        runs: of one sweep; the others are compared with the first.
        profiles: of the workloads.
        rows: cells of all runs, with verdicts.
        served: workloads on all runs, with verdicts.
        workload_samples: runs of real workloads, for each run.
        configuration: name; usually the default.

    Raises:
        InputError: fewer than two releases were measured.
    """
    versions = versions_of(runs)
    if len(versions) < 2:
        raise InputError(
            f"these runs do not measure several releases of Ceph, but {versions[0] if versions else 'none'}",
            where=", ".join(run.run_id for run in runs),
            remedy="measure the same sweep before and after the upgrade, or on labs of two releases "
            "(`cephfit lab up --release`), and name the runs with --run or --target",
        )
    by_name = {profile.name: profile for profile in profiles}
    outcomes = tuple(
        WorkloadOutcome(one, _parts(by_name[one.workload], one, rows, len(runs)))
        for one in served
        if one.configuration == configuration
    )
    releases, unknown = catalogues_of(versions)
    defaults = differing_defaults(releases) if len(releases) > 1 else ()
    defaults = tuple(default for default in defaults if _concerns(default, runs))
    real = tuple(_real_runs(workload_samples, configuration))
    return UpgradeAdvice(
        _labels(runs),
        tuple(runs),
        configuration,
        outcomes,
        defaults,
        tuple(release.version for release in releases),
        real,
        (*_untested_runs(runs), *_untested_defaults(defaults), *_untested_workloads(outcomes, real, unknown)),
    )


def _parts(
    profile: Profile, served: Served, rows: Sequence[Row], n_targets: int
) -> tuple[tuple[CellPart, ...], ...]:
    return ((), *(cell_parts(profile, served, rows, target) for target in range(1, n_targets)))


def _labels(runs: Sequence[Run]) -> tuple[str, ...]:
    versions = [version_of(run.facts) for run in runs]
    return tuple(
        f"Ceph {version}" if version and versions.count(version) == 1
        else f"Ceph {version or 'of unknown release'} on {run.target}"
        for version, run in zip(versions, runs, strict=True)
    )  # fmt: skip


def _concerns(default: DifferingDefault, runs: Sequence[Run]) -> bool:
    """Return whether the OSDs of any run have the kind of disk that an option is for."""
    kinds = {osd.get("rotational") for run in runs for osd in run.facts.get("osds", ())} - {None}
    needed = {"_hdd": "1", "_ssd": "0"}.get(default.name[-4:])
    return needed is None or not kinds or needed in kinds


def _real_runs(samples: Sequence[Sequence[tuple[str, WorkloadSample]]], configuration: str) -> list[RealRuns]:
    """Compare the real workloads that ran on the first target and on another one."""
    values = [_values(of_run, configuration) for of_run in samples]
    found = []
    for place, before in (values[0] if values else {}).items():
        for target in range(1, len(values)):
            if after := values[target].get(place):
                found.append(_real_run(*place, target, before, after))
    return found


def _real_run(
    workload: str, metric: str, target: int, before: Sequence[float], after: Sequence[float]
) -> RealRuns:
    spreads = summary_statistics.pooled_spread([after]), summary_statistics.pooled_spread([before])
    return RealRuns(
        workload,
        target,
        metric,
        Level.of_repeats(before),
        Level.of_repeats(after),
        Level(
            summary_statistics.ratio(after, before),
            summary_statistics.welch_ratio_interval(after, before, *spreads),
        ),
    )


def _values(
    samples: Sequence[tuple[str, WorkloadSample]], configuration: str
) -> Mapping[tuple[str, str], list[float]]:
    """Return the results by workload and metric."""
    found: dict[tuple[str, str], list[float]] = {}
    for workload, sample in samples:
        is_result = sample.state is State.OK and sample.value is not None and sample.value > 0
        if is_result and sample.configuration == configuration and not workload.startswith(PROBE_PREFIX):
            assert sample.value is not None
            found.setdefault((workload, sample.metric), []).append(sample.value)
    return found


def _untested_runs(runs: Sequence[Run]) -> list[str]:
    """Return what the runs themselves leave open."""
    first, *others = runs
    found = []
    if any(is_another_cluster(first.facts, run.facts) for run in others):
        found.append(
            "The runs are of different clusters: differences of their disks and hosts count as differences of the "
            "releases. The surest comparison is one cluster, before and after its upgrade."
        )
    elif None in [run.facts.get(CLUSTER) for run in runs]:
        found.append("Whether the runs are of one cluster is unknown.")
    if max(abs(run.created_ns - first.created_ns) for run in others) > _APART_NS:
        found.append(
            "The runs began more than an hour apart: other load on the cluster may have changed meanwhile."
        )
    if mixed := [run.run_id for run in runs if len(run.facts.get("versions", {}).get("ceph") or {}) > 1]:
        found.append(f"Daemons of several releases ran during {', '.join(mixed)}: the upgrade was not complete.")
    found.append(
        "The upgrade of clients: librbd has its own release and its own defaults, which these runs do not record."
    )
    return found


def _untested_defaults(defaults: Sequence[DifferingDefault]) -> list[str]:
    """Return the work that samples do not contain, with its new defaults."""
    found = []
    for acts_on, what in (
        (ActsOn.SCRUBBING, "Scrubbing next to clients: samples that it disturbs do not count"),
        (ActsOn.RECOVERY, "Recovery next to clients: samples that it disturbs do not count"),
        (ActsOn.ERASURE, "Pools with erasure codes, unless the sweep has them"),
        (ActsOn.COMPRESSION, "Pools with compression, unless the sweep has them"),
    ):
        if names := [default.name for default in defaults if default.acts_on is acts_on]:
            found.append(f"{what}. Their new defaults: {', '.join(names)}.")
    if names := [default.name for default in defaults if default.at_creation]:
        found.append(
            f"OSDs from before an upgrade: they keep their values of what only new OSDs read ({', '.join(names)})."
        )
    return found


def _untested_workloads(
    outcomes: Sequence[WorkloadOutcome], real: Sequence[RealRuns], unknown: Sequence[str]
) -> list[str]:
    found = []
    for outcome in outcomes:
        for rate in outcome.served.rates[:1]:
            if rate is not None and rate.omitted:
                found.append(f"{outcome.served.workload}: {', '.join(map(str, rate.omitted))} was not measured.")
        if missing := next((f.missing for f in outcome.served.by_target if f.rate is None), ""):
            found.append(f"{outcome.served.workload} cannot be compared: {missing}.")
    if not real:
        found.append(
            "No real workload ran on two of the releases: these are rates of mixes of accesses. `cephfit verify` "
            "runs a workload on each target."
        )
    if unknown:
        found.append(
            f"The options of Ceph {', '.join(unknown)} are unknown here, so its defaults are not compared."
        )
    return found


def times(level: Level | None) -> str:
    """Format a ratio: ``0.86 times (0.80 to 0.93)``."""
    if level is None:
        return "not comparable"
    if level.interval is None:
        return f"{formatting.times(100 * level.mean)} times (spread unknown)"
    ends = formatting.times_interval(100 * level.interval.low, 100 * level.interval.high)
    return f"{formatting.times(100 * level.mean)} times ({ends})"


def answer_of(outcome: WorkloadOutcome, labels: Sequence[str]) -> str:
    """Return which release serves a workload better, and by how much, as one sentence."""
    name, by_target = outcome.served.workload, outcome.served.by_target
    others = list(enumerate(by_target))[1:]
    if all(f.ratio is None for _, f in others):
        why = next((f.missing for f in by_target if f.missing), "nothing was measured in common")
        return f"{name}: no release can be compared with {labels[0]}: {why}."
    better = [(n, f) for n, f in others if f.change is Change.BETTER]
    best = max(better, key=lambda entry: _mean(entry[1]), default=None)
    if len(others) == 1:
        return f"{name}: {labels[1]} {_verb(by_target[1])} {labels[0]}: {times(by_target[1].ratio)}."
    rest = [(n, f) for n, f in others if best is None or n != best[0]]
    clauses = "; ".join(
        f"{labels[n]} {times(f.ratio)}, {f.change}" if f.ratio else f"{labels[n]} cannot be compared"
        for n, f in rest
    )
    if best is None:
        return f"{name}: no release serves it distinguishably better than {labels[0]}: {clauses}."
    tail = f"; {clauses}" if clauses else ""
    return f"{name}: {labels[best[0]]} serves it best, {times(best[1].ratio)} the rate of {labels[0]}{tail}."


def _mean(figures: TargetFigures) -> float:
    return figures.ratio.mean if figures.ratio else -math.inf


def _verb(figures: TargetFigures) -> str:
    return {
        Change.BETTER: "serves it better than",
        Change.WORSE: "serves it worse than",
        Change.NONE: "is not distinguishable from",
        Change.UNKNOWN: "cannot be compared with",
    }[figures.change]


def moved_cells(outcome: WorkloadOutcome, labels: Sequence[str]) -> list[str]:
    """Return one sentence per release on the cells that moved and carry weight; empty without rates."""
    found = []
    for target, parts in enumerate(outcome.parts):
        if not parts:
            continue
        moved = [part for part in parts if part.moved and part.share >= _SHARE_OF_A_CELL]
        if not moved:
            found.append(f"{labels[target]}: none distinguishably")
            continue
        named = [f"{p.cell} {times(p.figures.ratio)}, {formatting.per_cent(p.share)} of its time" for p in moved]
        more = f"; {len(moved) - _SHOWN_CELLS} more" if len(moved) > _SHOWN_CELLS else ""
        found.append(f"{labels[target]}: {'; '.join(named[:_SHOWN_CELLS])}{more}")
    return found
