"""Rows of the table of samples as columns. It needs numpy, which lists of runs do without."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.core.statistics.sample_columns import STATES, Codes, Ints, Names, SampleColumns
from cephfit.core.values.cells import stored_cell


def columns_of(batches: Iterable[Sequence[Sequence[Any]]]) -> SampleColumns:
    """Return the samples of rows of ``schema.SAMPLE_COLUMNS``, which come in batches."""
    names, sizes, patterns = Names(), Codes(), Codes()
    states = {state.value: code for code, state in enumerate(STATES)}
    parts: list[list[NDArray[Any]]] = []
    for rows in batches:
        configuration, size, pattern, load, client, repeat, attempt, state, *rest = zip(*rows, strict=True)
        coded = (
            names.configurations.of(configuration),
            sizes.of(size) << _PATTERN_BITS | patterns.of(pattern),
            names.loads.of(load),
            names.clients.of(client),
            _column(int, repeat),
            _column(int, attempt),
            _column(int, list(map(states.__getitem__, state))),
        )
        parts.append([*coded, *(_column(kind, values) for kind, values in zip(_KINDS, rest, strict=True))])
    if not parts:
        return SampleColumns.of(())
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    columns[1] = _cell_codes(columns[1], names.cells, tuple(sizes), tuple(patterns))
    return SampleColumns.with_names(names, *columns)


_PATTERN_BITS = 16


def _cell_codes(places: Ints, cells: Codes, sizes: Sequence[str], patterns: Sequence[str]) -> Ints:
    """Return the number of each cell in ``cells``, which receives them, from the numbers of sizes and patterns."""
    found, firsts, of_rows = np.unique(places, return_index=True, return_inverse=True)
    codes = np.zeros(len(found), np.int64)
    for i in np.argsort(firsts).tolist():
        size, pattern = sizes[found[i] >> _PATTERN_BITS], patterns[found[i] & (1 << _PATTERN_BITS) - 1]
        codes[i] = cells[stored_cell(size, pattern, where="store of results")]
    return codes[of_rows]


_KINDS = (float, float, int, int, float, object, int, int, object, object)
"""Types of the columns of figures, times and documents. Missing floats become NaN."""


def _column(kind: type, values: Sequence[Any]) -> NDArray[Any]:
    try:
        return np.fromiter(values, kind, len(values))
    except TypeError:  # a sample without metrics
        return np.array(values, kind)
