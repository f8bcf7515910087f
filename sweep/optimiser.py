"""The trials of an optimiser, and its next proposals: Optuna behind its ask-and-tell interface.

A trial is in the store before it is measured. No state of Optuna is stored: each request for proposals rebuilds
the study from the stored trials. The study's random numbers depend only on the seed and the number of trials. So
the same history gives the same proposals, and a kill at any moment loses nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.optional_modules import optional_module
from cephfit.core.statistics.sample_columns import SampleColumns
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration, Partition, Setting
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE
from cephfit.core.values.sample import OWN_LOAD, Sample
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.sweep.factorial_design import (
    Factor,
    Level,
    Sampler,
    Search,
    configuration_of,
    sentence,
    shortened,
)
from cephfit.sweep.sweep_plan import Goal, Sweep

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

Point = tuple[float, ...]
"""One number per factor: the index of its level, or the position in its span, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One proposal.

    Attributes:
        configuration: what is measured.
        point: its coordinates in the search space.
        batch: number of its batch, from 0; trials of a batch are measured together.
    """

    configuration: Configuration
    point: Point
    batch: int


def level_at(factor: Factor, coordinate: float) -> Level:
    """Return the level of a factor at a coordinate of a point."""
    return factor.level(coordinate) if factor.span is not None else factor.levels[int(coordinate)]


def levels_at(search: Search, point: Point) -> tuple[Level, ...]:
    """Return the levels of all factors at a point."""
    return tuple(level_at(f, u) for f, u in zip(search.design.factors, point, strict=True))


def trial_at(search: Search, point: Point, *, number: int, batch: int) -> Trial:
    """Return the trial at a point; ``number`` counts from 1 and becomes part of its name."""
    levels = levels_at(search, point)
    name = shortened(search.design.name, tail=f"-{number:0{max(2, len(str(search.trials)))}d}")
    return Trial(configuration_of(name, levels, sentence(search.design.factors, levels)), point, batch)


def trials_to_json(trials: Iterable[Trial]) -> dict[str, Any]:
    """Return trials as the document that the store keeps."""
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
    """Return the trials that ``trials_to_json`` wrote; none where there is no document yet."""
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
    """Return the sweep with the configurations of its trials added."""
    return replace(sweep, configurations=(*sweep.configurations, *(t.configuration for t in trials)))


def batch_rounds(sweep: Sweep, batch: int) -> range:
    """Return the rounds in which a batch is measured: one per repeat of the measurement."""
    repeats = sweep.measurement.repeats
    return range(batch * repeats, (batch + 1) * repeats)


def rounds_by_name(sweep: Sweep, trials: Sequence[Trial]) -> dict[str, range]:
    """Return the rounds of each configuration: all for the default, those of their batch for others."""
    last = max((t.batch for t in trials), default=0)
    rounds = {c.name: batch_rounds(sweep, 0) for c in sweep.configurations}
    rounds |= {t.configuration.name: batch_rounds(sweep, t.batch) for t in trials}
    return {**rounds, DEFAULT_CONFIGURATION: range(batch_rounds(sweep, last).stop)}


def values_of(
    sweep: Sweep, trials: Sequence[Trial], samples: Sequence[Sample], goal: Goal | None
) -> list[float | None]:
    """Return the result of each trial relative to the default of the same rounds = 100; None without a result.

    A trial is compared with the default's samples of the same batch, so that a drift between batches cancels.
    """
    search = sweep.search
    assert search is not None, "only an optimiser has trials"
    columns = SampleColumns.of(samples)
    own = columns.take(columns.rows_under(OWN_LOAD))
    return [_value(search, t, own, goal, batch_rounds(sweep, t.batch)) for t in trials]


def _value(search: Search, trial: Trial, samples: SampleColumns, goal: Goal | None, rounds: range) -> float | None:
    names = (DEFAULT_CONFIGURATION, trial.configuration.name)
    codes = [i for i, name in enumerate(samples.configurations) if name in names]
    kept = np.isin(samples.configuration, codes) & np.isin(samples.repeat, list(rounds))
    baselines = baselines_of(samples.take(np.flatnonzero(kept)), source=f"trial {trial.configuration.name}")
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


_ASKED_AGAIN = 50
"""Number of repeated proposals after which the space counts as exhausted."""


def proposals(search: Search, history: Sequence[tuple[Point, float | None]], n: int) -> list[Point]:
    """Return up to ``n`` points that were not tried yet; fewer where the space has no more.

    Args:
        search: the task.
        history: every trial's point and its result; None where it has none.
        n: number of points that are measured together.

    Raises:
        LackingError: Optuna is not installed.
    """
    optional_module("optuna")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    factors = search.design.factors
    space = {factor.name: _distribution(factor) for factor in factors}
    study = optuna.create_study(
        sampler=_sampler(search, len(history)), direction="maximize" if search.is_maximised else "minimize"
    )
    states = optuna.trial.TrialState
    for point, value in history:
        study.add_trial(
            optuna.trial.create_trial(
                state=states.FAIL if value is None else states.COMPLETE,
                params=dict(zip(space, (_param(f, u) for f, u in zip(factors, point, strict=True)), strict=True)),
                distributions=space,
                value=value,
            )
        )
    seen = {levels_at(search, point) for point, _ in history}
    seen.add(tuple(Level("default", ()) for _ in factors))  # the default is measured in every round anyway
    found: list[Point] = []
    for _ in range(n + _ASKED_AGAIN):
        params = study.ask(space).params
        point = tuple(float(params[name]) for name in space)
        if levels_at(search, point) not in seen:
            seen.add(levels_at(search, point))
            found.append(point)
            if len(found) == n:
                break
    return found


def _sampler(search: Search, n_tried: int) -> "BaseSampler":
    from optuna.samplers import RandomSampler, TPESampler

    seed = (search.seed * 1_000_003 + n_tried) % (1 << 32)
    if search.sampler is Sampler.RANDOM:
        return RandomSampler(seed=seed)
    # Points of a batch that are not measured yet count as bad (constant_liar). Otherwise a batch would propose
    # nearly the same point several times.
    return TPESampler(seed=seed, n_startup_trials=search.startup, multivariate=True, constant_liar=True)


def _distribution(factor: Factor) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if factor.span is not None:
        return FloatDistribution(0.0, 1.0)
    if _is_ordered(factor):
        return IntDistribution(0, len(factor.levels) - 1)
    return CategoricalDistribution(tuple(range(len(factor.levels))))


def _param(factor: Factor, coordinate: float) -> float | int:
    return coordinate if factor.span is not None else int(coordinate)


def _is_ordered(factor: Factor) -> bool:
    """Return whether the levels are numbers in ascending or descending order."""
    values = [level.settings[0].value if len(level.settings) == 1 else "" for level in factor.levels]
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return len(numbers) == len(values) > 2 and numbers in (sorted(numbers), sorted(numbers, reverse=True))
