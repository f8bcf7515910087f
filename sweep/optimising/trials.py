"""The trials of an optimiser: what was proposed, kept in the store before it is measured, and what it gave."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cephfit.configuration import DEFAULT_CONFIGURATION, Configuration, Partition, Setting
from cephfit.errors import InputError
from cephfit.prediction_model import DEFAULT_CONFIDENCE
from cephfit.results.baselines import baselines_of
from cephfit.sample import OWN_LOAD, Sample
from cephfit.sweep.design.factor import Factor, Level, configuration_of
from cephfit.sweep.design.model import Search
from cephfit.sweep.design.names import sentence, shortened
from cephfit.sweep.goal import Goal
from cephfit.sweep.model import Sweep

Point = tuple[float, ...]
"""One number per factor: the index of its level, or the part of the way through its span, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One proposal.

    Attributes:
        configuration: what is measured.
        point: where it lies.
        batch: counts from 0; trials of a batch are measured together.
    """

    configuration: Configuration
    point: Point
    batch: int


def level_at(factor: Factor, coordinate: float) -> Level:
    """The level of a factor at a point's coordinate."""
    return factor.level(coordinate) if factor.span is not None else factor.levels[int(coordinate)]


def levels_at(search: Search, point: Point) -> tuple[Level, ...]:
    """The levels of all factors at a point."""
    return tuple(level_at(f, u) for f, u in zip(search.design.factors, point, strict=True))


def trial_at(search: Search, point: Point, *, number: int, batch: int) -> Trial:
    """The trial at a point; ``number`` counts from 1 and is its name."""
    levels = levels_at(search, point)
    name = shortened(search.design.name, tail=f"-{number:0{max(2, len(str(search.trials)))}d}")
    return Trial(configuration_of(name, levels, sentence(search.design.factors, levels)), point, batch)


def trials_to_json(trials: Iterable[Trial]) -> dict[str, Any]:
    """For the store."""
    return {
        "trials": [
            {
                "name": t.configuration.name,
                "why": t.configuration.why,
                "batch": t.batch,
                "point": list(t.point),
                "settings": [[s.partition.value, s.scope, s.key, s.value] for s in t.configuration.settings],
            }
            for t in trials
        ]
    }


def trials_from_json(document: Mapping[str, Any] | None) -> tuple[Trial, ...]:
    """What ``trials_to_json`` wrote; none where there is no document yet."""
    return tuple(
        Trial(
            Configuration(
                row["name"],
                tuple(Setting(Partition(p), scope, key, value) for p, scope, key, value in row["settings"]),
                row["why"],
            ),
            tuple(row["point"]),
            row["batch"],
        )
        for row in (document or {}).get("trials", ())
    )


def with_trials(sweep: Sweep, trials: Sequence[Trial]) -> Sweep:
    """The sweep with the configurations that were found on the way."""
    return replace(sweep, configurations=(*sweep.configurations, *(t.configuration for t in trials)))


def batch_rounds(sweep: Sweep, batch: int) -> range:
    """The rounds in which a batch is measured: each batch has as many as the measurement has repeats."""
    repeats = sweep.measurement.repeats
    return range(batch * repeats, (batch + 1) * repeats)


def rounds_by_name(sweep: Sweep, trials: Sequence[Trial]) -> dict[str, range]:
    """The rounds in which each configuration is measured: the default in all, others in those of their batch."""
    last = max((t.batch for t in trials), default=0)
    rounds = {c.name: batch_rounds(sweep, 0) for c in sweep.configurations}
    rounds |= {t.configuration.name: batch_rounds(sweep, t.batch) for t in trials}
    return {**rounds, DEFAULT_CONFIGURATION: range(batch_rounds(sweep, last).stop)}


def values_of(
    sweep: Sweep, trials: Sequence[Trial], samples: Sequence[Sample], goal: Goal | None
) -> list[float | None]:
    """What each trial gave, the default of the same rounds = 100; None where it gave nothing.

    A trial is held against the default's samples of its own batch, so that a drift from batch to batch cancels.
    """
    search = sweep.search
    assert search is not None, "only an optimiser has trials"
    return [_value(search, t, samples, goal, batch_rounds(sweep, t.batch)) for t in trials]


def _value(
    search: Search, trial: Trial, samples: Sequence[Sample], goal: Goal | None, rounds: range
) -> float | None:
    names = (DEFAULT_CONFIGURATION, trial.configuration.name)
    kept = [
        s for s in samples if s.key.repeat in rounds and s.key.configuration in names and s.key.load == OWN_LOAD
    ]
    baselines = baselines_of(kept, source=f"trial {trial.configuration.name}")
    if search.cell is not None:
        found = [baselines.cells.get((name, search.cell)) for name in names]
        if found[0] is None or found[1] is None:
            return None
        default, own = (sum(b.iops) / len(b.iops) for b in found if b is not None)
        return 100 * own / default
    assert goal is not None, "checked before the sweep began"
    assert goal.profile is not None, "checked before the sweep began"
    try:
        predictions = goal.predictor(DEFAULT_CONFIDENCE).predict(goal.profile, baselines)
    except InputError:
        return None
    found_value = [p.relative for p in predictions.predictions if p.configuration == trial.configuration.name]
    return found_value[0] if found_value else None
