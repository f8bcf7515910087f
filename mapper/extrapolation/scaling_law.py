"""Rates at numbers of clients that were not measured, by the Universal Scalability Law. Pure.

The law gives the rate of n clients together as

    X(n) = n λ / (1 + σ (n - 1) + κ n (n - 1)),    σ, κ >= 0

λ is the rate of one client alone, σ the contention (what clients wait for in turn) and κ the coherency delay (what
every pair of clients costs). With κ = 0 it is Amdahl's law. Source: N. J. Gunther, *Guerrilla Capacity Planning*,
Springer 2007, chapter 4; the same law is in arXiv:0808.1431.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.protocols import Predictor
from cephfit.core.statistics.round_effects import Floats
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.prediction import MODELS
from cephfit.mapper.models.mix_predictor import MixPredictor
from cephfit.mapper.models.model_error import NO_ERROR, ModelError

LEAST_COUNTS = 2
"""Fewest measured numbers of clients to which the law can be fitted."""
_WITH_COHERENCY = 3
"""Fewest for κ."""
_LEAST_DF = 3
_ZERO = 1e-9


@dataclass(frozen=True, slots=True)
class ScalingLaw:
    """A fitted law.

    Attributes:
        rate_of_one: λ.
        contention: σ.
        coherency: κ.
        counts: numbers of clients that it was fitted to, ascending, shape (K,).
    """

    rate_of_one: float
    contention: float
    coherency: float
    counts: tuple[int, ...]

    def log_rate(self, n: int) -> float:
        """Return the log of the rate of ``n`` clients together."""
        return math.log(n * self.rate_of_one / self._delay(n))

    def weights(self, n: int) -> Floats:
        """Return the derivatives of ``log_rate(n)`` by the log rates at ``counts``, to first order; shape (K,).

        A contention or coherency of 0 is at its limit, and stays there.
        """
        free = [True, self.contention > _ZERO, self.coherency > _ZERO]
        jacobian = np.array([self._gradient(k) for k in self.counts])[:, free]
        weights: Floats = self._gradient(n)[free] @ np.linalg.pinv(jacobian)
        return weights

    def _delay(self, n: int) -> float:
        return 1 + self.contention * (n - 1) + self.coherency * n * (n - 1)

    def _gradient(self, n: int) -> Floats:
        """Return the derivatives of ``log_rate(n)`` by log λ, σ and κ."""
        delay = self._delay(n)
        return np.array([1.0, -(n - 1) / delay, -n * (n - 1) / delay])


def fit_law(counts: Sequence[int], log_rates: Sequence[float]) -> ScalingLaw:
    """Fit the law by least squares of log rates. With two counts κ is 0.

    Args:
        counts: numbers of clients, ascending, K of them.
        log_rates: log of the rate of all clients together, K of them.

    Raises:
        InputError: fewer than two counts.
    """
    if len(counts) < LEAST_COUNTS:
        raise InputError(
            "the scaling law needs rates at two numbers of clients or more",
            remedy="measure loads with other numbers of clients (`clients:` of a load in the sweep file)",
        )
    from scipy.optimize import least_squares

    n, y = np.array(counts, dtype=np.float64), np.asarray(log_rates, dtype=np.float64)
    # Derivatives of the delay by σ and κ.
    terms = np.stack([n - 1, n * (n - 1)][: 2 if len(counts) >= _WITH_COHERENCY else 1])
    own = y - np.log(n)

    def residuals(shape: Floats) -> Floats:
        both = own + np.log1p(shape @ terms)
        return np.asarray(both - both.mean())

    def jacobian(shape: Floats) -> Floats:
        by_shape = (terms / (1 + shape @ terms)).T
        return np.asarray(by_shape - by_shape.mean(axis=0))

    start = _through_the_rates(n, np.exp(own.max() - own), terms)
    shape = start
    if np.abs(residuals(start)).max() > _ZERO:  # else the law goes through all rates
        shape = least_squares(residuals, start, jac=jacobian, bounds=(0, np.inf), xtol=1e-12).x
        shape = np.where(shape > _ZERO, shape, 0.0)
    rate_of_one = math.exp(float((own + np.log1p(shape @ terms)).mean()))
    contention, coherency = (*shape, 0.0)[:2]
    return ScalingLaw(rate_of_one, float(contention), float(coherency), tuple(counts))


def _through_the_rates(n: Floats, seconds: Floats, terms: Floats) -> Floats:
    """Return σ and κ for which the times per access, ``n / X(n)``, are nearest: a linear problem, from 0 on."""
    from scipy.optimize import nnls

    found, _ = nnls((np.vstack([np.ones_like(n), terms]) / seconds).T, np.ones_like(n))
    return np.asarray(found[1:] / max(found[0], _ZERO))


@dataclass(frozen=True, slots=True)
class ScaledBaselines:
    """Baselines at a number of clients that was not measured.

    Attributes:
        n_clients: that number.
        counts: the measured ones, ascending.
        baselines: by the law, fitted for each configuration and cell.
        laws: by (configuration, cell), of ``baselines.cells``.
        error: root mean square of the errors of the law, of the log ratio to the default.
        n_errors: how many they are; 0: unknown.
        left_out: how the error was estimated: with one count left out, or, of two counts, against a power law.
    """

    n_clients: int
    counts: tuple[int, ...]
    baselines: Baselines
    laws: Mapping[Any, ScalingLaw]
    error: float
    n_errors: int
    left_out: bool

    @property
    def is_extrapolated(self) -> bool:
        """Whether the number is outside of the measured ones."""
        return not self.counts[0] < self.n_clients < self.counts[-1]

    def notes(self, *, with_error: bool = True) -> tuple[str, ...]:
        """Return sentences for the reader of a prediction; ``with_error``: intervals contain that of the law."""
        counts = f"{', '.join(map(str, self.counts[:-1]))} and {self.counts[-1]}"
        notes = [
            f"{self.n_clients} clients were not measured: the rates follow the Universal Scalability Law, fitted "
            f"to those of {counts} clients in each cell"
        ]
        if self.is_extrapolated:
            side = "above the largest" if self.n_clients > self.counts[-1] else "below the smallest"
            notes.append(
                f"EXTRAPOLATED: {self.n_clients} clients are {side} measured number; a limit that only shows "
                "there, such as a saturated network or CPU, is unknown to the law"
            )
        if not self.n_errors:
            return (*notes, "the error of the law is unknown, and not part of the intervals")
        how = (
            "with a measured number of clients left out"
            if self.left_out
            else "of Amdahl's law against a power law (two numbers of clients allow no better estimate)"
        )
        contain = "contain" if with_error else "do not contain"
        return (
            *notes,
            f"the intervals {contain} the error of the law, {100 * math.expm1(self.error):.1f} % of a ratio to "
            f"the default ({how}; root mean square of {self.n_errors})",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the law of each configuration and cell, and its error, as JSON values."""
        return {
            "clients": self.n_clients,
            "measured_clients": list(self.counts),
            "extrapolated": self.is_extrapolated,
            "law_error": self.error if self.n_errors else None,
            "laws": [
                {
                    "configuration": name,
                    "cell": str(cell),
                    "rate_of_one": law.rate_of_one,
                    "contention": law.contention,
                    "coherency": law.coherency,
                    "iops": math.exp(law.log_rate(self.n_clients)),
                }
                for (name, cell), law in self.laws.items()
            ],
        }

    def with_its_error(self, model_predictor: Predictor) -> Predictor:
        """Return the predictor with the error of the law added to the errors of all models."""
        if not isinstance(model_predictor, MixPredictor) or not self.n_errors:
            return model_predictor

        def added(error: ModelError) -> ModelError:
            by_cells = error.by_cells and added(error.by_cells)
            df = min(error.df, max(_LEAST_DF, self.n_errors))
            return replace(error, floor=math.hypot(error.floor, self.error), df=df, by_cells=by_cells)

        errors = {m.name: added(model_predictor.errors.get(m.name, NO_ERROR)) for m in MODELS}
        return replace(model_predictor, errors=errors)


def baselines_at(by_clients: Mapping[int, Baselines], n_clients: int) -> ScaledBaselines:
    """Return baselines at a number of clients that was not measured.

    The law is fitted to the mean log rates of each configuration and cell, over the rounds in which it was
    measured at all counts. Each of these rounds gets a rate: the law's, plus the deviations of the round's own
    rates in first order. So the rounds scatter as the covariance of the fit says, and effects of a round still
    cancel in ratios.

    The error of the law itself is that of the log ratio to the default when a measured count is left out: one
    between others if ``n_clients`` is between two counts, else the outermost one on its side. Further outside it
    grows with the log of the distance. It includes scatter, so it is rather too large. Of two counts none can be
    left out; the error is then the difference between Amdahl's law and a power law through both.

    Args:
        by_clients: number of clients to baselines under otherwise equal loads; at least two.
        n_clients: 1 or more.

    Raises:
        InputError: fewer than two counts, or no cell of the default was measured at two.
    """
    counts = tuple(sorted(by_clients))
    first = by_clients[counts[0]]
    if len(counts) < LEAST_COUNTS:
        fit_law(counts, [])  # refused
    cells = _Rates.of({n: b.cells for n, b in by_clients.items()})
    loaded = _Rates.of({n: b.loaded for n, b in by_clients.items()})
    if not any(name == first.default for rates in (cells, loaded) for name, _ in rates.logs):
        raise InputError(
            f"no cell was measured with two numbers of clients in the same round under {first.default}",
            where=first.source,
            remedy="measure the loads with other numbers of clients in the cells of the workload",
        )
    missing = {p: why for b in by_clients.values() for p, why in b.missing.items()}
    missing |= dict.fromkeys(
        cells.seen - set(cells.logs), "it was not measured with two numbers of clients in the same round"
    )
    laws = cells.laws()
    errors = (loaded if loaded.logs else cells).errors(first.default, n_clients)
    found = replace(
        first,
        cells=cells.at(n_clients, laws),
        loaded=loaded.at(n_clients, loaded.laws()),
        missing={p: why for p, why in missing.items() if p not in cells.logs},
        lost={},
        measured_load=replace(first.measured_load, at_limit=frozenset()),
        source=f"{first.source}, {n_clients} clients by the scaling law",
    )
    mean_square = math.fsum(e * e for e in errors) / len(errors) if errors else 0.0
    return ScaledBaselines(
        n_clients, counts, found, laws, math.sqrt(mean_square), len(errors), len(counts) > LEAST_COUNTS
    )


@dataclass(frozen=True, slots=True)
class _Rates:
    """The log rates of each (configuration, cell) over counts and rounds.

    Attributes:
        logs: (counts, rounds, log rates of shape (K, R)) of each place with two counts or more.
        seen: all places.
    """

    logs: Mapping[Any, tuple[tuple[int, ...], tuple[int, ...], Floats]]
    seen: frozenset[Any]

    @classmethod
    def of(cls, by_clients: Mapping[int, Mapping[Any, Baseline]]) -> "_Rates":
        seen = dict.fromkeys(place for cells in by_clients.values() for place in cells)
        logs = {}
        for place in seen:
            own = {n: by_clients[n][place] for n in sorted(by_clients) if place in by_clients[n]}
            rounds = tuple(sorted(set.intersection(*(set(b.rounds) for b in own.values()))))
            if len(own) >= LEAST_COUNTS and rounds:
                rates = [dict(zip(b.rounds, b.iops, strict=True)) for b in own.values()]
                logs[place] = tuple(own), rounds, np.log([[r[i] for i in rounds] for r in rates])
        return cls(logs, frozenset(seen))

    def laws(self) -> dict[Any, ScalingLaw]:
        return {place: fit_law(counts, logs.mean(axis=1)) for place, (counts, _, logs) in self.logs.items()}

    def at(self, n: int, laws: Mapping[Any, ScalingLaw]) -> dict[Any, Baseline]:
        found = {}
        for place, law in laws.items():
            _, rounds, logs = self.logs[place]
            own = law.log_rate(n) + law.weights(n) @ (logs - logs.mean(axis=1, keepdims=True))
            name, cell = place
            found[place] = Baseline(
                name, getattr(cell, "bin_cell", cell), tuple(map(float, np.exp(own))), n, rounds
            )
        return found

    def errors(self, default: str, n: int) -> list[float]:
        """Return errors of the log ratio of each place to the default in its cell."""
        of_place = {place: dict(_own_errors(counts, logs, n)) for place, (counts, _, logs) in self.logs.items()}
        return [
            error - of_place[default, cell][left]
            for (name, cell), own in of_place.items()
            if name != default and (default, cell) in of_place
            for left, error in own.items()
            if left in of_place[default, cell]
        ]


def _own_errors(counts: Sequence[int], logs: Floats, n: int) -> Iterable[tuple[int, float]]:
    """Yield (count left out, error of the log rate); (0, difference to a power law) of two counts."""
    y = logs.mean(axis=1)
    if len(counts) == LEAST_COUNTS:
        slope = (y[1] - y[0]) / math.log(counts[1] / counts[0])
        yield 0, fit_law(counts, y).log_rate(n) - float(y[0] + slope * math.log(n / counts[0]))
        return
    if n > counts[-1]:
        left, growth = [len(counts) - 1], math.log(n / counts[-1]) / math.log(counts[-1] / counts[-2])
    elif n < counts[0]:
        left, growth = [0], math.log(counts[0] / n) / math.log(counts[1] / counts[0])
    else:
        left, growth = list(range(1, len(counts) - 1)), 1.0
    for k in left:
        others = [i for i in range(len(counts)) if i != k]
        law = fit_law([counts[i] for i in others], y[others])
        yield counts[k], max(1.0, growth) * (law.log_rate(counts[k]) - float(y[k]))
