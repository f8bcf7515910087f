"""The error of rates that are interpolated over sizes, from sizes that were measured: each is left out in turn.

Where a profile only has counts, a cell of the 20 that was not measured is interpolated (``access_weights``). How
far its ratio to the default may be off is seen at the measured sizes: without one of them, its time per access is
interpolated under the configuration and the default, and the ratio of the two is compared with the measured one.
Leaving a size out doubles the gap between neighbours, so the error is rather too large. Pure.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from cephfit.core.units import format_nbytes
from cephfit.core.values.baseline import Baseline
from cephfit.core.values.cells import LoadedCell, Pattern
from cephfit.core.values.demand import Demand
from cephfit.core.variance import Booleans, Floats
from cephfit.mapper.access_weights import interpolated_time
from cephfit.mapper.mixture import Mixture

_FACTOR = 10.0
"""A configuration is taken to be at most this many times faster or slower than interpolated where too few sizes
were measured to know: as for omitted cells (``omitted_cells``)."""

Rates = Mapping[tuple[str, LoadedCell], Baseline]


@dataclass(frozen=True, slots=True)
class SizeErrors:
    """Errors of the log ratio of a configuration to the default at sizes that were left out.

    Attributes:
        between: at sizes with a measured neighbour on both sides.
        beyond: at the smallest and the largest size.
    """

    between: tuple[float, ...]
    beyond: tuple[float, ...]

    @classmethod
    def of(cls, loaded: Rates, default: str, name: str) -> "SizeErrors":
        """Leave out each size of each pattern that both configurations have."""
        between: list[float] = []
        beyond: list[float] = []
        for pattern in Pattern:
            times = [
                (size, 1 / _mean(loaded[default, cell]), 1 / _mean(loaded[name, cell]))
                for size, cell in _plain(loaded, default, pattern)
                if (name, cell) in loaded
            ]
            for i, (size, of_default, own) in enumerate(times):
                rest = times[:i] + times[i + 1 :]
                if len(rest) < 2:
                    continue
                sizes = np.array([row[0] for row in rest], dtype=np.float64)
                found = [interpolated_time(size, sizes, np.array([row[k] for row in rest])) for k in (1, 2)]
                error = math.log(found[1] / found[0]) - math.log(own / of_default)
                (between if 0 < i < len(times) - 1 else beyond).append(error)
        return cls(tuple(between), tuple(beyond))

    def factor(self, confidence: float, *, is_between: bool) -> float:
        """Return how many times faster or slower than interpolated a configuration may be, at least 1."""
        errors = self.between if is_between else self.beyond
        if not errors:
            return _FACTOR
        scale = math.sqrt(math.fsum(e * e for e in errors) / len(errors))
        return min(_FACTOR, math.exp(float(stdtrit(len(errors), (1 + confidence) / 2)) * scale))


@dataclass(frozen=True, slots=True, eq=False)
class InterpolatedSizes:
    """The demands of a workload whose size was not measured. D demands.

    Attributes:
        loaded: the rates.
        default: name of the default.
        between: the size is between measured ones, shape (D,).
        beyond: it is outside them, shape (D,).
        names: what they are, for readers.
    """

    loaded: Rates
    default: str
    between: Booleans
    beyond: Booleans
    names: tuple[str, ...]

    @classmethod
    def of(cls, demands: Sequence[Demand], loaded: Rates, default: str) -> "InterpolatedSizes | None":
        """Return them; None if every size was measured. Patterns without any measured size do not count."""
        between, beyond = (np.zeros(len(demands), dtype=np.bool_) for _ in range(2))
        names = []
        for i, demand in enumerate(demands):
            sizes = [size for size, _ in _plain(loaded, default, demand.pattern)]
            if sizes and demand.nbytes not in sizes:
                is_between = sizes[0] < demand.nbytes < sizes[-1]
                (between if is_between else beyond)[i] = True
                names.append(f"{format_nbytes(math.ceil(demand.nbytes))}-{demand.pattern}")
        return cls(loaded, default, between, beyond, tuple(names)) if names else None

    def half_width(self, name: str, mixture: Mixture, confidence: float) -> float:
        """Return half the interval of the log prediction that comes from interpolation alone."""
        errors = SizeErrors.of(self.loaded, self.default, name)
        shares = mixture.weights / mixture.ratios
        shares = shares / shares.sum()
        inside, outside = float(shares[self.between].sum()), float(shares[self.beyond].sum())
        slower = 1 - inside - outside
        slower += inside * errors.factor(confidence, is_between=True)
        slower += outside * errors.factor(confidence, is_between=False)
        return math.log(slower)

    def note(self, compared: Sequence[str], weights: Floats) -> str:
        """Return what was interpolated, and how well that works here."""
        share = 100 * float(weights[self.between | self.beyond].sum())
        found = [SizeErrors.of(self.loaded, self.default, name) for name in compared]
        factors = sorted(math.exp(abs(e)) for errors in found for e in (*errors.between, *errors.beyond))
        text = f"interpolated: {', '.join(self.names)} with {share:.2g} % of the default's time, not measured"
        if not factors:
            return (
                f"{text}; too few sizes were measured to know the error, so the intervals cover configurations "
                f"that are up to {_FACTOR:g} times faster or slower there"
            )
        return (
            f"{text}; without each measured size in turn, ratios to the default were off by a factor of "
            f"{factors[len(factors) // 2]:.3f} in the median and {factors[-1]:.2f} at most, and the intervals "
            "contain this error"
        )


def _plain(loaded: Rates, default: str, pattern: Pattern) -> Iterator[tuple[int, LoadedCell]]:
    """Yield the sizes of a pattern under the default, ascending: shallow, aligned and without commits."""
    cells = [
        cell
        for name, cell in loaded
        if name == default and cell.pattern is pattern and not cell.align_nbytes and not cell.sync
    ]
    shallow = min((cell.iodepth for cell in cells), default=0)
    yield from sorted((cell.nbytes, cell) for cell in cells if cell.iodepth == shallow)


def _mean(baseline: Baseline) -> float:
    return math.fsum(baseline.iops) / len(baseline.iops)
