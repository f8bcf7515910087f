"""Baselines: what a sweep found for every configuration and cell."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from cephfit.cells import Cell
from cephfit.configuration import DEFAULT_CONFIGURATION
from cephfit.errors import InputError
from cephfit.measured_load import MeasuredLoad
from cephfit.tabular import Table, Tabular


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
