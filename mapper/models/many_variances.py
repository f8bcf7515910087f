"""Half widths of the intervals of many workloads at once: ``Spread.variance_of`` as products of matrices. Pure.

Where all configurations were measured in the same rounds, the log prediction of configuration j has the weight
g / R on each of the R repeats of a cell under j, and -h / R under the default: g and h are the gradients of the
prediction by the rates of both. So its variance, and each part of the variance of that variance, is a sum over
cells of g^2, h^2, g^4, h^4 or g^2 h^2, times a coefficient that depends on the cell and on j alone. With x = g^2
and y = h^2:

    V     = sum x a + sum y b + shifts of applications
    Var V = sum x^2 e + sum x y f + sum y^2 q + (sum x p)^2 / d + (sum y s)^2 / d0 + shifts^2

For models that add time, g is v t / T: the workload's accesses v, the measured time per access t, and the time T
of the whole workload. Then sum x a is the product of the matrices v^2 (workloads x cells) and t^2 a (cells x
configurations), over T^2; and likewise the others. Where h differs between configurations, it is a product of two
matrices for each workload (``DefaultGradients``).

All terms of these sums are positive, and with v in seconds under the default and t relative to the default they
are near 1. So they are of single precision: half widths differ by some 1e-7 of themselves.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.special import stdtrit

from cephfit.core.statistics.round_effects import Booleans, Floats
from cephfit.core.statistics.variance import Spread, Table

Singles = NDArray[np.float32]
_Numbers = NDArray[np.floating[Any]]


def _single(of: _Numbers) -> Singles:
    return of.astype(np.float32)


_NODES, _STEPS = 1024, 1 << 16


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Student's quantiles of one level, by the reciprocal of their degrees of freedom, 0 to 1.

    The logarithms at ``_NODES`` places are interpolated by a cubic spline to ``_STEPS`` places, and the quantiles
    linearly between these: the relative error is below 1e-7.

    Attributes:
        values: at equal distances, shape (_STEPS + 2,).
        rises: differences between these, shape (_STEPS + 1,).
    """

    values: Singles
    rises: Singles

    @classmethod
    def of(cls, level: float) -> "Quantiles":
        """Return the quantiles of a probability above 0.5."""
        places = np.linspace(0.0, 1.0, _NODES + 1)
        with np.errstate(divide="ignore"):
            nodes = stdtrit(np.minimum(1 / places, 1e15), level)
        fine = np.exp(CubicSpline(places, np.log(nodes))(np.linspace(0.0, 1.0, _STEPS + 1)))
        values = np.append(fine, fine[-1])
        return cls(values.astype(np.float32), np.diff(values).astype(np.float32))

    def at(self, places: Singles) -> Singles:
        """Return the quantiles at reciprocal degrees of freedom."""
        scaled = places * np.float32(_STEPS)
        at = scaled.astype(np.int32)
        scaled -= at.astype(np.float32)
        scaled *= self.rises[at]
        scaled += self.values[at]
        return scaled


@dataclass(frozen=True, slots=True)
class DefaultSums:
    """The sums over cells that depend on h, each of shape (n, 1) or (n, K).

    Attributes:
        variance: sum y b.
        pooled: sum y s.
        squares: sum y^2 q.
        crossed: sum x y f.
        rounds: squared weights of rounds under the default, added.
    """

    variance: Singles
    pooled: Singles
    squares: Singles
    crossed: Singles
    rounds: Singles

    @classmethod
    def of(cls, *sums: _Numbers) -> "DefaultSums":
        """Return the sums, in the order of the attributes."""
        return cls(*map(_single, sums))


@dataclass(frozen=True, slots=True)
class OwnSums:
    """The sums over cells that depend on g alone, times the square of T (``squares``: its fourth power).

    Each has the shape (n, K).

    Attributes:
        variance: sum x a.
        pooled: sum x p.
        squares: sum x^2 e.
        rounds: squared weights of rounds under the configurations, added.
    """

    variance: Singles
    pooled: Singles
    squares: Singles
    rounds: Singles

    def put(self, rows: NDArray[np.intp], of_others: Booleans, others: "OwnSums") -> None:
        """Replace some of the sums in some rows.

        Args:
            rows: r of the n workloads.
            of_others: which sums of these are replaced, shape (r, K).
            others: of these rows.
        """
        for own, its in (
            (self.variance, others.variance),
            (self.pooled, others.pooled),
            (self.squares, others.squares),
            (self.rounds, others.rounds),
        ):
            own[rows] = np.where(of_others, its, own[rows])


@dataclass(frozen=True, slots=True)
class DefaultGradients:
    """The gradients h of one workload, where they differ between configurations, as a product of matrices.

    Attributes:
        left, right: of shape (P, Q) and (Q, K): h T = left @ right, with Q queues of the workload.
        v: accesses per cell, for configurations under which the application takes longer, and for those under
            which the storage's work does, shape (2, P).
        by_work: the latter ones, shape (K,).
    """

    left: Floats
    right: Floats
    v: Floats
    by_work: Booleans


@dataclass(frozen=True, slots=True)
class ScatterCoefficients:
    """The coefficients of the module's sums. K configurations without the default, P cells.

    Attributes:
        a, e, f, p: of the configurations, shape (P, K).
        b, q, s: of the default, shape (P,).
        rounds: weight of a repeat of each cell in each round, 1 / repeats, shape (P, R).
        inverse_df: 1 / d of the default and of the configurations, shape (1 + K,).
        spread: from which they are made.
    """

    a: Floats
    e: Floats
    f: Floats
    p: Floats
    b: Floats
    q: Floats
    s: Floats
    rounds: Floats
    inverse_df: Floats
    spread: Spread

    @classmethod
    def of(cls, spread: Spread, table: Table, used: NDArray[np.intp]) -> "ScatterCoefficients":
        """Return the coefficients of some cells of a table, each with the same rounds for all configurations.

        They follow from ``Spread.variance_of`` with weights of g / R and -h / R.
        """
        parts = spread.parts
        n = spread.n[0, used].astype(np.float64)
        drawn, share = parts.drawn[:, used], parts.pool_share[:, used]
        precise = spread.moderated[:, used] ** 2 / np.maximum(parts.df[:, used], 1)
        pooled, own, through = drawn * spread.target[:, used], 1 - drawn, drawn * spread.unsteadiness[:, None]
        pool = (share**2 * precise).sum(axis=0)
        squares = pool * through**2 + own**2 * precise + 2 * own * through * share * precise
        squares += pooled**2 / spread.prior_df
        crossed = 2 * pool * through[1:] * through[0] + 2 * own[1:] * through[0] * (share * precise)[1:]
        crossed += 2 * own[0] * through[1:] * (share * precise)[0]
        return cls(
            a=np.ascontiguousarray((spread.moderated[1:, used] / n).T),
            e=np.ascontiguousarray((squares[1:] / n**2).T),
            f=np.ascontiguousarray((crossed / n**2).T),
            p=np.ascontiguousarray((pooled[1:] / n).T),
            b=spread.moderated[0, used] / n,
            q=squares[0] / n**2,
            s=pooled[0] / n,
            rounds=table.present[0, used] / n[:, None],
            inverse_df=1 / parts.unsteadiness_df,
            spread=spread,
        )

    def chosen(self, cells: NDArray[np.intp]) -> "ScatterCoefficients":
        """Return those of some of the cells."""
        of_cells = {name: getattr(self, name)[cells] for name in ("a", "e", "f", "p", "b", "q", "s", "rounds")}
        return replace(self, **of_cells)

    def half_widths(
        self, variance: Singles, squares: Singles, pooled: Singles, rounds: Singles, default: DefaultSums,
        quantiles: Quantiles,
    ) -> Singles:  # fmt: skip
        """Return half the intervals of log predictions, shape (n, K).

        Args:
            variance, squares, pooled: sum x a, sum x^2 e and sum x p, shape (n, K).
            rounds: squared weights of rounds under the configurations, added, shape (n, K).
            default: the sums with h.
            quantiles: of the level of one configuration.
        """
        spread, inverse_df = self.spread, self.inverse_df.astype(np.float32)
        variance = variance + default.variance
        uncertainty = squares + default.crossed
        uncertainty += default.squares + default.pooled**2 * inverse_df[0]
        uncertainty += pooled**2 * inverse_df[1:]
        if spread.applied_df:
            together = rounds + default.rounds
            variance += spread.applied * together
            uncertainty += (spread.applied_raw * together) ** 2 / spread.applied_df
        alone, alone_raw, alone_df = spread.alone, spread.alone_raw, spread.alone_df
        if alone is not None and alone_raw is not None and alone_df is not None and alone.any():
            alone, per_df = alone.astype(np.float32), (alone_raw**2 / alone_df).astype(np.float32)
            variance += alone[1:] * rounds + alone[0] * default.rounds
            uncertainty += per_df[1:] * rounds**2 + per_df[0] * default.rounds**2
        known = variance > 0  # else the prediction does not depend on the measurements
        places = np.divide(uncertainty, variance**2, out=np.zeros_like(variance), where=known)
        return np.asarray(quantiles.at(np.minimum(places, 1.0, out=places)) * np.sqrt(variance))


@dataclass(frozen=True, slots=True)
class TimeScatter:
    """Intervals of models that add time: g = v t / T.

    Attributes:
        coefficients: for P cells and K configurations.
        default: the default's time per access, shape (P,).
        times: time per access t relative to the default's, shape (P, K).
        a, e, f, p: the coefficients times t^2, t^4, t^2 and t^2.
        even: whether all cells were measured in the same rounds.
    """

    coefficients: ScatterCoefficients
    default: Floats
    times: Singles
    a: Singles
    e: Singles
    f: Singles
    p: Singles
    even: bool

    @classmethod
    def of(cls, coefficients: ScatterCoefficients, times: Floats, default: Floats) -> "TimeScatter":
        """Return the intervals of K configurations.

        Args:
            coefficients: for P cells and K configurations.
            times: seconds per access, shape (P, K).
            default: seconds per access under the default, shape (P,).
        """
        relative, c = times / default[:, None], coefficients
        squared = relative**2
        even = bool((c.rounds == c.rounds[:1]).all())
        a, e, f, p = map(_single, (c.a * squared, c.e * squared**2, c.f * squared, c.p * squared))
        return cls(c, default, _single(relative), a, e, f, p, even)

    def sums(self, v: Floats) -> OwnSums:
        """Return the sums over cells that depend on g.

        Args:
            v: accesses per cell, shape (n, P).
        """
        seconds = (v * self.default).astype(np.float32)
        squared = seconds**2
        if self.even:
            rounds = (seconds @ self.times) ** 2
            rounds *= np.float32((self.coefficients.rounds[0] ** 2).sum())
        else:
            of_rounds = self.coefficients.rounds.astype(np.float32).T
            rounds = np.asarray(sum(((seconds * of) @ self.times) ** 2 for of in of_rounds))
        return OwnSums(squared @ self.a, squared @ self.p, squared**2 @ self.e, rounds)

    def half_widths(self, sums: OwnSums, inverse: Floats, default: DefaultSums, quantiles: Quantiles) -> Singles:
        """Return half the intervals of log predictions, shape (n, K).

        Args:
            sums: with g.
            inverse: 1 / T, shape (n, K).
            default: the sums with h.
            quantiles: of the level of one configuration.
        """
        inverse_2 = inverse.astype(np.float32) ** 2
        variance, pooled, rounds = (of * inverse_2 for of in (sums.variance, sums.pooled, sums.rounds))
        squares = sums.squares * inverse_2
        squares *= inverse_2
        return self.coefficients.half_widths(variance, squares, pooled, rounds, default, quantiles)

    def of_default(self, h: Floats, inverse: Floats) -> DefaultSums:
        """Return the sums where the gradients h are the same for all configurations.

        Args:
            h: the workload's seconds under the default per cell, shape (n, P).
            inverse: as for ``half_widths``.
        """
        c, y = self.coefficients, h**2
        crossed = (y**2).astype(np.float32) @ self.f
        crossed *= inverse.astype(np.float32) ** 2
        rounds = ((h @ c.rounds) ** 2).sum(axis=1)
        return DefaultSums.of(
            (y @ c.b)[:, None], (y @ c.s)[:, None], (y**2 @ c.q)[:, None], crossed, rounds[:, None]
        )

    def of_each_default(self, workloads: Iterable[DefaultGradients], inverse: Floats) -> DefaultSums:
        """Return the sums where the gradients h differ between configurations.

        There are as many products as workloads, cells, queues and configurations.

        Args:
            workloads: n of them.
            inverse: as for ``half_widths``.
        """
        c = self.coefficients
        found, rounds = np.empty((4, *inverse.shape)), np.empty(inverse.shape)
        coefficients: tuple[_Numbers, ...] = (np.stack([c.b, c.s]), c.q, self.f)
        units = [float(of.max()) or 1.0 for of in coefficients]
        linear, squares, f = ((of / unit).astype(np.float32) for of, unit in zip(coefficients, units, strict=True))
        crossed = np.empty_like(f)
        of_rounds = np.ones((1, len(c.b))) if self.even else c.rounds.T
        for i, its in enumerate(workloads):
            right = its.right * inverse[i]  # near 1, whatever the unit of time
            rounds[i] = ((of_rounds @ its.left @ right) ** 2).sum(axis=0)
            y = its.left.astype(np.float32) @ right.astype(np.float32)
            np.multiply(y, y, out=y)
            found[:2, i] = linear @ y
            np.multiply(y, f, out=crossed)
            seconds = (its.v[::-1] * self.default).astype(np.float32)
            found[3, i] = np.where(its.by_work, *(seconds**2 @ crossed))
            found[2, i] = squares @ np.multiply(y, y, out=y)
        if self.even:
            rounds *= float((c.rounds[0] ** 2).sum())
        found *= np.array([units[0], units[0], units[1], units[2]])[:, None, None]
        return DefaultSums.of(found[0], found[1], found[2], found[3] * inverse**2, rounds)


@dataclass(frozen=True, slots=True)
class RateScatter:
    """Intervals of models that add relative rates: g = h = v r / M, with the ratios r and their sum M.

    Attributes:
        coefficients: for P cells and K configurations.
        ratios: of the rates to the default's, shape (P, K).
        a, e, p, s: the coefficients of all powers of x, times r^2, r^4, r^2 and r^2.
    """

    coefficients: ScatterCoefficients
    ratios: Floats
    a: Floats
    e: Floats
    p: Floats
    s: Floats

    @classmethod
    def of(cls, coefficients: ScatterCoefficients, ratios: Floats) -> "RateScatter":
        squared, c = ratios**2, coefficients
        squares = (c.e + c.f + c.q[:, None]) * squared**2
        return cls(c, ratios, (c.a + c.b[:, None]) * squared, squares, c.p * squared, c.s[:, None] * squared)

    def half_widths(self, v: Floats, inverse: Floats, quantiles: Quantiles) -> Singles:
        """Return half the intervals of log predictions, shape (n, K).

        Args:
            v: accesses per cell, shape (n, P).
            inverse: 1 / M, shape (n, K).
            quantiles: of the level of one configuration.
        """
        inverse_2, v_2, none = inverse**2, v**2, np.zeros((1, 1))
        rounds = sum(((v * of_round) @ self.ratios * inverse) ** 2 for of_round in self.coefficients.rounds.T)
        default = DefaultSums.of(none, (v_2 @ self.s) * inverse_2, none, none, rounds)
        variance, pooled = _single((v_2 @ self.a) * inverse_2), _single((v_2 @ self.p) * inverse_2)
        squares = _single((v_2**2 @ self.e) * inverse_2**2)
        return self.coefficients.half_widths(
            variance, squares, pooled, _single(np.asarray(rounds)), default, quantiles
        )
