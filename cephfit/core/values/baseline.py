"""Baselines: the rates of every configuration and cell, and the load they were measured under.

What the load that rates were measured under does to them: a mix of reads and writes, a limit. Pure.

Baselines: what a sweep found for every configuration and cell.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cephfit.core.errors import InputError
from cephfit.core.tabular import Table, Tabular
from cephfit.core.values.cells import Cell, Op
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.profile import Profile

_SHARE_POINTS = 1.0
"""Per cent of the accesses by which a workload's reads may differ from those of the mix that was measured."""


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """What must be known of a load before its rates are taken for what the storage can do.

    Attributes:
        read_pct: share of reads in the mix that every cell was measured in, in per cent; None where a cell's
            direction ran alone, or that is not known.
        limit: the load's own limit of each client in words, such as ``250 IOPS``; empty where there is none.
        at_limit: (configuration, cell) in which a client reached it. Such a rate is a lower bound: the storage
            was not asked for more.
    """

    read_pct: int | None = None
    limit: str = ""
    at_limit: frozenset[tuple[str, Cell]] = frozenset()

    def reached_in(self, configurations: Sequence[str], cells: Sequence[Cell]) -> str:
        """A sentence on the limit that names configurations and cells; empty where it was not reached in them."""
        under: dict[tuple[Cell, ...], list[str]] = {}
        for name in configurations:
            if reached := tuple(cell for cell in cells if (name, cell) in self.at_limit):
                under.setdefault(reached, []).append(name)
        if not under:
            return ""
        places = "; ".join(
            f"{', '.join(names)} in {', '.join(map(str, reached))}" for reached, names in under.items()
        )
        return (
            f"the load's own limit of {self.limit} per client was reached under {places}: these rates are lower "
            "bounds, and what the storage can do there was not measured"
        )

    def mixed_for(self, profile: Profile) -> str:
        """A sentence where the workload has another share of reads than the mix that was measured; else empty."""
        if self.read_pct is None:
            return ""
        reads = 100 * math.fsum(profile.accesses[Op.READ].values()) / profile.n_accesses
        if abs(reads - self.read_pct) <= _SHARE_POINTS:
            return ""
        return (
            f"every cell was measured in a mix of {self.read_pct} % reads, and {profile.name} has {reads:.3g} % "
            "reads: the prediction is from rates in that mix, which may rank the configurations differently"
        )


def parts_of_mix(limit: int, read_pct: int) -> Mapping[Op, int]:
    """A client's limit for reads and for writes in a mix: fio limits each direction by itself."""
    reads = max(1, round(limit * read_pct / 100))
    return {Op.READ: reads, Op.WRITE: max(1, limit - reads)}


@dataclass(frozen=True, slots=True)
class Baseline:
    """The repeated measurements of one configuration in one cell.

    Attributes:
        configuration: name.
        cell: which of the 20.
        iops: one value per repeat: the sum over the clients that ran together. Clients of the same run share
            its fate, so the repeat is the independent unit, not the client.
        n_clients: clients that ran together.
        rounds: the number of each repeat, rising; counted from 0 unless given. What was measured in the same round
            ran within the same pass over all configurations: what that hour did to all of them cancels where they
            are compared within it.
    """

    configuration: str
    cell: Cell
    iops: tuple[float, ...]
    n_clients: int = 1
    rounds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.iops or any(v <= 0 for v in self.iops):
            raise ValueError(f"{self.configuration} {self.cell}: baselines are positive, got {self.iops}")
        if not self.rounds:
            object.__setattr__(self, "rounds", tuple(range(len(self.iops))))
        if len(self.rounds) != len(self.iops) or any(b <= a for a, b in pairwise(self.rounds)):
            raise ValueError(f"{self.configuration} {self.cell}: {self.rounds} number no {len(self.iops)} repeats")


@dataclass(frozen=True, slots=True)
class Baselines(Tabular):
    """All baselines of a sweep.

    Attributes:
        cells: by (configuration, cell).
        source: where they come from, for people.
        missing: why a (configuration, cell) has no baseline, where it was tried.
        default: name of the default configuration.
        lost: why repeats of a (configuration, cell) gave no figure, one reason for each; not where all of them
            gave one, nor where that is not known.
        measured_load: what the load that they were measured under does to them, as far as that is known.
        is_finished: whether the run was measured to its end; None where that is not known.
        notes: what a reader must know of the run, such as that it is simulated or unfinished.
    """

    cells: Mapping[tuple[str, Cell], Baseline]
    source: str
    missing: Mapping[tuple[str, Cell], str] = field(default_factory=dict)
    default: str = DEFAULT_CONFIGURATION
    lost: Mapping[tuple[str, Cell], tuple[str, ...]] = field(default_factory=dict)
    measured_load: MeasuredLoad = field(default_factory=MeasuredLoad)
    is_finished: bool | None = None
    notes: tuple[str, ...] = ()

    def _table(self) -> Table:
        return Table(
            f"Baselines from {self.source}",
            ("configuration", "size", "pattern", "round", "iops", "clients"),
            tuple(
                (name, cell.size.name, cell.pattern.value, number, iops, found.n_clients)
                for (name, cell), found in self.cells.items()
                for number, iops in zip(found.rounds, found.iops, strict=True)
            ),
            self.notes,
        )

    @property
    def configurations(self) -> tuple[str, ...]:
        """Names in the order of first appearance, the default first."""
        names = dict.fromkeys([self.default, *(c for c, _ in self.cells)])
        return tuple(names)

    def of(self, configuration: str, cell: Cell) -> Baseline:
        """Raises:
        InputError: not measured.
        """
        try:
            return self.cells[configuration, cell]
        except KeyError:
            names = dict.fromkeys(name for name, _ in (*self.cells, *self.missing))
            if configuration == self.default and configuration not in names:
                raise InputError(
                    f"there are no figures of {configuration}, the default that all others are compared with",
                    where=self.source,
                    remedy=f"there are {', '.join(names)}: give the default the name {configuration}",
                ) from None
            why = self.missing.get((configuration, cell), "it was not measured")
            raise InputError(
                f"no baseline for {cell} under configuration {configuration}: {why}",
                where=self.source,
                remedy="the workload uses this cell: finish the sweep, or add the cell to the sweep file",
            ) from None
