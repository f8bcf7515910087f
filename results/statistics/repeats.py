"""The repeats of a run that count, and their figures over all clients. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cephfit.core.statistics.sample_columns import OK, STATES, Floats, Ints, Rows, SampleColumns
from cephfit.core.values.cells import Cell

P99 = 99.0


@dataclass(frozen=True, slots=True)
class Repeats:
    """The repeats that count of one configuration and cell under one load. All have the same K clients.

    Attributes:
        samples: of the run.
        rows: of the samples, ascending in the repeat, then by the name of the client; shape (R, K).
    """

    samples: SampleColumns
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def numbers(self) -> list[int]:
        """The number of each repeat."""
        return list(self.samples.repeat[self.rows[:, 0]].tolist())

    @property
    def n_clients(self) -> int:
        return int(self.rows.shape[1])

    def of_clients(self, column: Floats | Ints) -> list[list[Any]]:
        """Return a column's values of each repeat's clients."""
        return list(column[self.rows].tolist())

    def sums(self, column: Floats) -> list[float]:
        """Return a column's sum over the clients of each repeat."""
        return list(map(math.fsum, self.of_clients(column)))

    def latency_mean_ns(self) -> list[float]:
        """Return each repeat's mean latency over all I/Os: a client's mean is weighted by its number of I/Os."""
        samples = self.samples
        total = self.samples.n_ios[self.rows].sum(axis=1).tolist()
        weighted = (samples.latency_mean_ns[self.rows] * samples.n_ios[self.rows]).tolist()
        return [math.fsum(own) / n for own, n in zip(weighted, total, strict=True)]

    def slowest_p99_ns(self) -> list[float | None]:
        """Return the 99th percentile of each repeat's slowest client; None where a client has none.

        It bounds the percentile of all clients, which cannot be computed.
        """
        tails = self.samples.tails
        if P99 not in tails.percentiles:
            return [None] * len(self)
        own = tails.ns[:, tails.percentiles.index(P99)][self.rows]
        known = np.all(own > 0, axis=1)
        return [p99 if k else None for p99, k in zip(own.max(axis=1).tolist(), known, strict=True)]


@dataclass(frozen=True, slots=True)
class Tried:
    """The samples of one configuration and cell under a load.

    Attributes:
        samples: of the run.
        rows: of those of this place, in the order of measuring.
        whole: the repeats of them that count: those with an attempt in which every client is ok and had I/O.
    """

    samples: SampleColumns
    rows: Rows
    whole: Repeats

    def reasons(self, repeat: int | None = None) -> str:
        """Return why samples are not ok; those of one repeat, or of all."""
        s = self.samples
        rows = self.rows if repeat is None else self.rows[s.repeat[self.rows] == repeat]
        found = zip(s.state[rows], s.reason[rows], strict=True)
        return "; ".join(dict.fromkeys(f"{STATES[state]}: {reason}" for state, reason in found if reason))

    def lost(self) -> list[int]:
        """Return the repeats that do not count, ascending."""
        every = np.unique(self.samples.repeat[self.rows])
        return list(np.setdiff1d(every, self.whole.numbers).tolist())


Place = tuple[str, Cell]


def tried_at_places(samples: SampleColumns, rows: Rows) -> dict[Place, Tried]:
    """Group rows by (configuration, cell), in order of appearance, and find the repeats that count.

    Args:
        rows: of samples of one load, in the order of measuring.
    """
    places = samples.configuration[rows] * len(samples.cells) + samples.cell[rows]
    whole = _whole(samples, rows, places)
    _, firsts, groups, counts = np.unique(places, return_index=True, return_inverse=True, return_counts=True)
    by_group = np.split(rows[np.argsort(groups, kind="stable")], np.cumsum(counts)[:-1])
    found = {}
    for group in np.argsort(firsts, kind="stable").tolist():
        own = by_group[group]
        place = samples.configurations[samples.configuration[own[0]]], samples.cells[samples.cell[own[0]]]
        found[place] = Tried(samples, own, Repeats(samples, whole[int(places[firsts[group]])]))
    return found


def _whole(samples: SampleColumns, rows: Rows, places: Ints) -> Mapping[int, Rows]:
    """Return the rows of the repeats that count, shape (R, K), by place; clients in the order of their names.

    A repeat counts if it has an attempt in which every client is ``ok`` and had I/O. The first such is used.

    Args:
        rows: of samples of one load.
        places: number of each row's configuration and cell.
    """
    n = max(len(samples.clients), 1)
    pairs = np.unique(places * n + samples.client[rows])  # all clients of each place
    found: dict[int, Rows] = {}
    known, n_clients = np.unique(pairs // n, return_counts=True)
    good = (samples.state[rows] == OK) & (samples.iops[rows] > 0)
    rows, places = rows[good], places[good]
    order = np.lexsort((samples.client[rows], samples.attempt[rows], samples.repeat[rows], places))
    rows, places = rows[order], places[order]
    repeats, attempts = samples.repeat[rows], samples.attempt[rows]
    starts = _starts(places, repeats, attempts)
    sizes = np.diff(starts, append=len(rows))
    needed = n_clients[np.searchsorted(known, places[starts])]
    full = starts[sizes == needed]
    full = full[_starts(places[full], repeats[full])]  # the first attempt of each repeat
    for place, k in zip(known.tolist(), n_clients.tolist(), strict=True):
        own = full[slice(*np.searchsorted(places[full], (place, place + 1)))]
        found[place] = rows[own[:, None] + np.arange(k)]
    return found


def _starts(*columns: Ints) -> Rows:
    """Return where a value of sorted columns differs from the one before; the first row is one of them."""
    changes = np.zeros(len(columns[0]), np.bool_)
    changes[:1] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)
