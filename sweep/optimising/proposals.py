"""What an optimiser proposes next, from all that was tried so far: Optuna behind its ask-and-tell interface.

Nothing of Optuna's is kept: the study is built anew from the trials in our store whenever proposals are asked for,
and its random numbers depend on the seed and the number of trials alone. So the same history gives the same
proposals, and a kill between two lines loses nothing.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cephfit.optional_modules import optional_module
from cephfit.sweep.design.factor import Factor, Level
from cephfit.sweep.design.model import Sampler, Search
from cephfit.sweep.optimising.trials import Point, levels_at

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

_ASKED_AGAIN = 50
"""Times that a proposal which was tried already is passed over before the space is taken to be used up."""


def proposals(search: Search, history: Sequence[tuple[Point, float | None]], n: int) -> list[Point]:
    """Up to ``n`` points that were not tried yet; fewer where the space has no more.

    Args:
        search: the task.
        history: every trial's point and what it gave; None where it gave nothing.
        n: how many are measured together.

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
    # Of a batch, points not yet measured count as bad, so that one batch is not the same point over and over.
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
    """Whether the levels are numbers that grow or shrink from one to the next."""
    values = [level.settings[0].value if len(level.settings) == 1 else "" for level in factor.levels]
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return len(numbers) == len(values) > 2 and numbers in (sorted(numbers), sorted(numbers, reverse=True))
