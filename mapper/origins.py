"""From weights of rates, some of which follow from others, to weights of the measurements. Pure.

Rates that follow from the same measurements (``completed_rates``) are not independent. Variances are therefore
those of the measurements alone: the weight of such a rate is handed on to the measured rates that it follows from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import LoadedCell
from cephfit.core.variance import Booleans, Floats, Table
from cephfit.mapper.completed_rates import Sources


@dataclass(frozen=True, slots=True)
class Origins:
    """Which measurements rates follow from. J configurations, C cells with a rate, M cells that were measured.

    Attributes:
        coefficients: of the log of each measured rate in the log of one that follows from them, shape (C, M).
        own: place of each cell among the measured ones, shape (C,); -1 for cells that no configuration has.
        follows: rates that were not measured themselves, shape (J, C).
    """

    coefficients: Floats
    own: NDArray[np.intp]
    follows: Booleans

    def weights(self, of_used: Floats, used: NDArray[np.intp]) -> Floats:
        """Return the weights of all log measurements, shape (J, M, R).

        Args:
            of_used: weights of the log rates of some cells, shape (J, U, R).
            used: these cells, shape (U,).
        """
        rows = np.flatnonzero(of_used.any(axis=(1, 2)))  # mostly one configuration and the default
        follows, its = self.follows[np.ix_(rows, used)], of_used[rows]
        some, direct = np.flatnonzero(follows.any(axis=0)), np.flatnonzero(self.own[used] >= 0)
        of_rows = self.coefficients[used[some]].T @ (its[:, some] * follows[:, some, None])
        of_rows[:, self.own[used[direct]]] += its[:, direct] * ~follows[:, direct, None]
        found = np.zeros((len(of_used), *of_rows.shape[1:]))
        found[rows] = of_rows
        return found


def tables_of(
    rates: Mapping[Any, Baseline], sources: Sources, baselines: Baselines, names: tuple[str, ...]
) -> tuple[Table, Table, Origins | None]:
    """Return the table of all rates, that of the measured ones alone, and how they are connected.

    Both tables have the same rounds. They are the same one, without origins, if nothing follows from others.

    Args:
        rates: by (configuration, kind of access), those that follow from others included.
        sources: as ``Completed.sources``.
        baselines: what was measured.
        names: configurations, the default first.
    """
    measured = Table.of_loaded(baselines, names)
    if not sources:
        return measured, measured, None
    table = Table.of_loaded(replace(baselines, loaded=rates), names)
    column = {cell: m for m, cell in enumerate(measured.cells)}
    coefficients = np.zeros((len(table.cells), len(measured.cells)))
    for c, cell in enumerate(table.cells):
        of_cell = sources.get(cell, {}) if isinstance(cell, LoadedCell) else {}
        for source, coefficient in of_cell.items():
            coefficients[c, column[source]] = coefficient
    own = np.array([column.get(cell, -1) for cell in table.cells], dtype=np.intp)
    follows, was_measured = (np.asarray(of.present.any(axis=2)) for of in (table, measured))
    follows[:, own >= 0] &= ~was_measured[:, own[own >= 0]]
    return table, measured, Origins(coefficients, own, follows)
