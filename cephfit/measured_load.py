"""What the load that rates were measured under does to them: a mix of reads and writes, a limit. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cephfit.cells import Cell, Op
from cephfit.profile import Profile

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
