"""Rates measured on the one-machine lab, to which the simulation's parameters were fitted.

Source of the cells: ``benchmarks/data/lab_nine_repeats.csv`` (seven configurations, two clients, nine repeats).
Source of the others: docs/evidence.md, "Workloads that the method was not built on".
"""

import csv
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from cephfit.core.units import KIB
from cephfit.core.values.cells import Cell, Pattern
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration
from cephfit.sweep.declaration.sweep_file import find_sweep, read_sweep
from cephfit.targets.simulated_storage import LAB, Access, Parameters, iops

RECORDED = Path(__file__).resolve().parents[2] / "benchmarks" / "data" / "lab_nine_repeats.csv"
N_CLIENTS = 2


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured rate.

    Attributes:
        what: for people.
        configuration: under which it was measured.
        access: the load, of each of two clients.
        iops: measured, all clients together.
    """

    what: str
    configuration: Configuration
    access: Access
    iops: float

    def modelled(self, parameters: Parameters = LAB) -> float:
        """The simulation's rate of the same load, all clients together."""
        return N_CLIENTS * iops(self.configuration, self.access, n_clients=N_CLIENTS, parameters=parameters)


def configurations() -> dict[str, Configuration]:
    """Return the configurations of ``quick.yaml`` by name."""
    return {c.name: c for c in read_sweep(find_sweep("quick")).configurations}


def cell_figures() -> list[Figure]:
    """Return the median rate of every configuration and cell; the default's are of both of its names."""
    known = configurations()
    rounds: dict[tuple[str, str, str], defaultdict[str, float]] = {}
    with RECORDED.open(newline="") as file:
        for row in csv.DictReader(file):
            key = (row["configuration"], row["size"], row["pattern"])
            rounds.setdefault(key, defaultdict(float))[row["run"]] += float(row["iops"])
    return [
        Figure(
            f"{size}-{pattern}, {name}",
            known[name],
            Access(Cell.parse(f"{size}-{pattern}").size.benchmark_nbytes, Pattern(pattern)),
            statistics.median(rates.values()),
        )
        for (name, size, pattern), rates in rounds.items()
    ]


def alignment_figures() -> list[Figure]:
    """Return the rates of random writes with and without alignment; 24 is the middle of 21 to 27.

    Their number of clients is not recorded: it is taken as that of the cells, which have nearly the same rates.
    """
    default, direct = configurations()[DEFAULT_CONFIGURATION], configurations()["no-deferred"]
    own, blocks = Access(128 * KIB, Pattern.RANDWRITE), Access(128 * KIB, Pattern.RANDWRITE, align_nbytes=4 * KIB)
    steps = Access(40 * KIB, Pattern.RANDWRITE, align_nbytes=8 * KIB)
    return [
        Figure("128K random writes aligned to 128K, default", default, own, 67.5),
        Figure("128K random writes aligned to 4K, default", default, blocks, 24.0),
        Figure("128K random writes aligned to 128K, no-deferred", direct, own, 67.6),
        Figure("128K random writes aligned to 4K, no-deferred", direct, blocks, 58.8),
        Figure("40K random writes aligned to 8K, default", default, steps, 34.0),
        Figure("40K random writes aligned to 8K, no-deferred", direct, steps, 72.0),
    ]
