"""How cells are measured: measurement, loads, the steps of a plan, and what a target knows of a sweep."""

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Protocol

from cephfit.core.units import MIB
from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.sample import OWN_LOAD

FIO = "fio"
"""The engine that measures unless a sweep file names another one."""
RADOS_BENCH = "rados-bench"
RBD_BENCH = "rbd-bench"

RBD_OBJECT_NBYTES = 4 * MIB
"""RBD's default object size: volumes are written, and read through, in whole objects, so they hold whole ones."""


class CacheCondition(StrEnum):
    """The state of the caches between client and disk when a cell's run starts."""

    COLD = "cold"
    """Dropped before every run."""
    WARM = "warm"
    """The cell's volume was read once through before the run."""


@dataclass(frozen=True, slots=True)
class Load:
    """One more shape of the load that cells are measured under; None is as the measurement itself has it.

    Attributes:
        name: as the sweep file gives it; not empty.
        iodepth: I/Os that each client keeps in flight.
        n_clients: that run together.
        read_pct: share of reads in a mix of reads and writes, 1 to 99; the cell says whether the offsets are
            sequential or random, and which of the two directions the sample is of.
        rate_iops: limit of each client, I/Os per second.
        rate_nbytes_per_s: limit of each client, bytes per second.
        cells: measured under this load.
    """

    name: str
    iodepth: int | None = None
    n_clients: int | None = None
    read_pct: int | None = None
    rate_iops: int | None = None
    rate_nbytes_per_s: int | None = None
    cells: tuple[Cell, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """What it says, and nothing of what it leaves to the measurement."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        said["cells"] = None if self.cells is None else [str(cell) for cell in self.cells]
        return {key: value for key, value in said.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Measurement:
    """How every cell of every configuration is measured.

    Attributes:
        cells: which of the 20, in the vocabulary's order.
        n_clients: clients that run together.
        volume_nbytes: size of each client's volume.
        repeats: runs per configuration and cell.
        ramp_seconds: time before fio measures.
        run_seconds: measured time.
        ioengine: fio's, such as ``libaio`` or ``psync`` (the thesis: ``sync``).
        iodepth: per client.
        direct: past the client's page cache.
        cache: condition before each run.
        seed: of the order of runs.
        max_attempts: how often an invalid or failed sample is tried in all.
        engine: what measures, by the sweep file's name for it.
        read_pct: see Load; None is no mix.
        rate_iops: see Load; None is as fast as it goes.
        rate_nbytes_per_s: likewise.
        loads: besides the measurement's own.
    """

    cells: tuple[Cell, ...]
    n_clients: int
    volume_nbytes: int
    repeats: int
    ramp_seconds: float
    run_seconds: float
    ioengine: str
    iodepth: int
    direct: bool
    cache: CacheCondition
    seed: int
    max_attempts: int = 3
    engine: str = FIO
    read_pct: int | None = None
    rate_iops: int | None = None
    rate_nbytes_per_s: int | None = None
    loads: tuple[Load, ...] = ()

    @property
    def load_names(self) -> tuple[str, ...]:
        """Every load that cells are measured under, the measurement's own first."""
        return (OWN_LOAD, *(load.name for load in self.loads))

    @property
    def is_limited(self) -> bool:
        """Whether clients do I/O at a rate instead of as fast as it goes."""
        return self.rate_iops is not None or self.rate_nbytes_per_s is not None

    @property
    def most_clients(self) -> int:
        """Clients of the largest load: so many volumes are needed."""
        return max(self.n_clients, *(load.n_clients or 0 for load in self.loads), 1)

    def under(self, load: str) -> "Measurement":
        """How cells are measured under one load: a measurement without further loads."""
        if load == OWN_LOAD:
            return replace(self, loads=())
        shape = next(shape for shape in self.loads if shape.name == load)
        said = {field.name: getattr(shape, field.name) for field in fields(shape) if field.name != "name"}
        return replace(self, loads=(), **{key: value for key, value in said.items() if value is not None})

    def shape(self) -> dict[str, Any]:
        """The load by itself, for a sample's evidence. JSON values only."""
        return {
            "iodepth": self.iodepth,
            "clients": self.n_clients,
            "read_pct": self.read_pct,
            "rate_iops": self.rate_iops,
            "rate_nbytes_per_s": self.rate_nbytes_per_s,
        }

    def to_json(self) -> dict[str, Any]:
        """All of it, by name: for plans that are printed, and for the sweep's digest.

        What a measurement leaves out is left out here too, so that sweeps keep their digests.
        """
        further = {
            "engine": None if self.engine == FIO else self.engine,
            "read_pct": self.read_pct,
            "rate_iops": self.rate_iops,
            "rate_nbytes_per_s": self.rate_nbytes_per_s,
            "loads": [load.to_json() for load in self.loads] or None,
        }
        return {
            **{key: value for key, value in further.items() if value is not None},
            "cells": [str(cell) for cell in self.cells],
            "clients": self.n_clients,
            "volume_nbytes": self.volume_nbytes,
            "repeats": self.repeats,
            "ramp_seconds": self.ramp_seconds,
            "run_seconds": self.run_seconds,
            "ioengine": self.ioengine,
            "iodepth": self.iodepth,
            "direct": self.direct,
            "cache": self.cache.value,
            "seed": self.seed,
            "max_attempts": self.max_attempts,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """One configuration under one load, and the cells measured there.

    The loads of a configuration follow each other within a round, so that it is applied once for all of them.

    Attributes:
        repeat: round, counts from 0.
        configuration: name.
        cells: in the order of measuring.
        load: its name; empty is the measurement's own.
    """

    repeat: int
    configuration: str
    cells: tuple[Cell, ...]
    load: str = OWN_LOAD


class PlannedSweep(Protocol):
    """What a target may know of the sweep that is to run on it. ``cephfit.sweep`` has the real one."""

    @property
    def name(self) -> str:
        """Short, safe in file names."""

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """The default first; without those that an optimiser finds on the way."""

    @property
    def measurement(self) -> Measurement:
        """The same for all configurations."""

    @property
    def is_search(self) -> bool:
        """Whether an optimiser adds configurations on the way."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The planned runs, in order."""

    def changed_to(self, configurations: tuple[Configuration, ...], measurement: Measurement) -> "PlannedSweep":
        """The same sweep with other configurations and another measurement."""


_ASSUMED_RATE = 100.0 * (1 << 20)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What the steps of a sweep take beyond fio's own ramp and run time.

    Attributes:
        apply_seconds: bringing the target into a configuration whose volumes are filled already.
        cell_seconds: around one fio run: health, caches, fio's own start and end.
        fill_nbytes_per_s: filling volumes, all clients together.
        source: where the figures come from, for people.
        warm_nbytes_per_s: reading volumes through before a run with warm caches, all clients together.
        pace: seconds that pass for each second that a fio run is asked to take; 1 but in a simulation.
    """

    apply_seconds: float
    cell_seconds: float
    fill_nbytes_per_s: float
    source: str
    warm_nbytes_per_s: float = _ASSUMED_RATE
    pace: float = 1.0


ASSUMED_TIMES = StepTimes(
    apply_seconds=12.0,
    cell_seconds=1.0,
    fill_nbytes_per_s=_ASSUMED_RATE,
    source="assumed: 12 s to apply a configuration, 1 s around each fio run, volumes filled and read at 100 MiB/s",
)
"""Measured on a one-machine lab: an OSD restart until all PGs are active+clean takes 7 to 11 s, fio's start and
end 0.8 s (its threads look for their end every 0.25 s), and its disks write 100 MiB/s."""
