"""How cells are measured: measurement, loads, the steps of a plan, and the part of a sweep that targets see."""

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Protocol

from cephfit.core.units import MIB
from cephfit.core.values.cells import Cell, FileSet, LoadedCell, Op
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.sample import OWN_LOAD

FIO = "fio"
"""The default engine."""
RADOS_BENCH = "rados-bench"
RBD_BENCH = "rbd-bench"
MICRO = "micro"
"""Operations on files instead of blocks. It has threads with one operation each, and no engine of fio."""

FSYNC = "fsync"
"""Of ``Load.sync``: a flush follows each write."""
DSYNC = "dsync"
"""Of ``Load.sync``: each write is durable when it ends (O_DSYNC)."""

RBD_OBJECT_NBYTES = 4 * MIB
"""RBD's default object size: volumes are filled and read in whole objects, so their size is a multiple of it."""


class CacheCondition(StrEnum):
    """The state of the caches between client and disk when a cell's run starts."""

    COLD = "cold"
    """Dropped before every run."""
    WARM = "warm"
    """The cell's volume was read once completely before the run."""


@dataclass(frozen=True, slots=True)
class Load:
    """An additional load under which cells are measured; None means the value of the measurement.

    Attributes:
        name: as in the sweep file; not empty.
        iodepth: I/Os that each client keeps in flight.
        n_clients: concurrent clients.
        read_pct: share of reads in a mix of reads and writes, 1 to 99; the cell determines whether offsets are
            sequential or random, and which direction the sample is of.
        rate_iops: limit of each client, I/Os per second.
        rate_nbytes_per_s: limit of each client, bytes per second.
        cells: measured under this load.
        align_nbytes: accesses start at multiples of this many bytes (fio's ``blockalign``); 0: of their own size.
        sync: how writes are made durable: empty (not at all), ``fsync``, ``dsync`` or ``every N``.
    """

    name: str
    iodepth: int | None = None
    n_clients: int | None = None
    read_pct: int | None = None
    rate_iops: int | None = None
    rate_nbytes_per_s: int | None = None
    cells: tuple[Cell, ...] | None = None
    align_nbytes: int | None = None
    sync: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Only the values that differ from the measurement."""
        chosen = {field.name: getattr(self, field.name) for field in fields(self)}
        chosen["cells"] = None if self.cells is None else [str(cell) for cell in self.cells]
        return {key: value for key, value in chosen.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Steady:
    """When the rate of a run that writes is steady, and how long to repeat a run that is not.

    Attributes:
        within: part by which the rate may fall from the first half of the run to the second, above 0.
        limit_seconds: time of all runs of a sample together, ramps included. One run is always taken.
    """

    within: float
    limit_seconds: float

    def to_json(self) -> dict[str, Any]:
        return {"within": self.within, "limit_seconds": self.limit_seconds}


@dataclass(frozen=True, slots=True)
class Measurement:
    """How every cell of every configuration is measured.

    Attributes:
        cells: which of the 20, in the order of ``CELLS``; with engine ``micro``, operations on files.
        n_clients: concurrent clients.
        volume_nbytes: size of each client's volume.
        repeats: runs per configuration and cell.
        ramp_seconds: time before fio measures.
        run_seconds: measured time.
        ioengine: fio's, such as ``libaio`` or ``psync`` (the thesis: ``sync``).
        iodepth: per client.
        direct: bypass the client's page cache.
        cache: condition before each run.
        seed: of the order of runs.
        max_attempts: how often a sample is tried in total while it is invalid or failed.
        engine: name of the engine, as in the sweep file.
        read_pct: see Load; None: no mix.
        rate_iops: see Load; None: unlimited.
        rate_nbytes_per_s: likewise.
        loads: additional loads.
        align_nbytes: see Load; 0: every access starts at a multiple of its own size.
        sync: see Load.
        steady: repeats runs whose rate is not steady; None to take every run as it is.
        settle_seconds: wait before each run, in which the storage ends deferred work of the run before.
        new_volumes: each round has new volumes, so that the luck of where a volume's objects lie is part of the
            spread between repeats; otherwise volumes are kept for all rounds.
        files: on which operations work; None where blocks are measured.
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
    align_nbytes: int = 0
    sync: str = ""
    steady: Steady | None = None
    settle_seconds: float = 0.0
    new_volumes: bool = False
    files: FileSet | None = None

    @property
    def load_names(self) -> tuple[str, ...]:
        """Names of all loads, the measurement's own first."""
        return (OWN_LOAD, *(load.name for load in self.loads))

    @property
    def is_limited(self) -> bool:
        """Whether the rate of clients is limited."""
        return self.rate_iops is not None or self.rate_nbytes_per_s is not None

    @property
    def most_clients(self) -> int:
        """Clients of the largest load, which is the required number of volumes."""
        return max(self.n_clients, *(load.n_clients or 0 for load in self.loads), 1)

    def under(self, load: str) -> "Measurement":
        """How cells are measured under one load: a measurement without further loads."""
        if load == OWN_LOAD:
            return replace(self, loads=())
        shape = next(shape for shape in self.loads if shape.name == load)
        chosen = {field.name: getattr(shape, field.name) for field in fields(shape) if field.name != "name"}
        return replace(self, loads=(), **{key: value for key, value in chosen.items() if value is not None})

    @property
    def flush_interval(self) -> int:
        """Writes after which fio flushes (its ``fsync``); 0: it does not flush."""
        if self.sync == FSYNC:
            return 1
        return int(self.sync.removeprefix("every ")) if self.sync.startswith("every ") else 0

    def run_as(self, cell: Cell) -> LoadedCell:
        """Return how a cell is really run: an alignment to the block size or more is natural alignment, and only
        writes, also those of a mix, are made durable.
        """
        block = cell.size.benchmark_nbytes
        has_writes = cell.pattern.op is Op.WRITE or self.read_pct is not None
        return LoadedCell(
            block,
            cell.pattern,
            self.iodepth,
            self.align_nbytes if self.align_nbytes < block else 0,
            self.sync if has_writes else "",
        )

    def changes(self, other: "Measurement", cell: Cell) -> bool:
        """Return whether a cell is run otherwise than under another measurement."""
        mine, others = self.shape(), other.shape()
        concerned = {"align_nbytes", "sync"}
        if any(mine[key] != others[key] for key in mine.keys() & others.keys() - concerned):
            return True
        return self.run_as(cell) != other.run_as(cell)

    def shape(self) -> dict[str, Any]:
        """Return the load alone, for a sample's evidence. JSON values only."""
        return {
            "iodepth": self.iodepth,
            "clients": self.n_clients,
            "read_pct": self.read_pct,
            "rate_iops": self.rate_iops,
            "rate_nbytes_per_s": self.rate_nbytes_per_s,
            # Omitted where not set, so that samples of earlier versions keep their loads.
            **({"align_nbytes": self.align_nbytes} if self.align_nbytes else {}),
            **({"sync": self.sync} if self.sync else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """All values by name: for printed plans and for the sweep's digest.

        Values that a measurement does not set are omitted, so that sweeps keep their digests.
        """
        further = {
            "engine": None if self.engine == FIO else self.engine,
            "read_pct": self.read_pct,
            "rate_iops": self.rate_iops,
            "rate_nbytes_per_s": self.rate_nbytes_per_s,
            "loads": [load.to_json() for load in self.loads] or None,
            "align_nbytes": self.align_nbytes or None,
            "sync": self.sync or None,
            "steady": None if self.steady is None else self.steady.to_json(),
            "settle_seconds": self.settle_seconds or None,
            "new_volumes": self.new_volumes or None,
            "files": None if self.files is None else self.files.to_json(),
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

    Within a round the loads of a configuration follow each other, so that it is applied only once.

    Attributes:
        repeat: round, counts from 0.
        configuration: name.
        cells: in the order of measuring.
        load: its name; empty for the measurement's own.
    """

    repeat: int
    configuration: str
    cells: tuple[Cell, ...]
    load: str = OWN_LOAD


class PlannedSweep(Protocol):
    """The part of a sweep that a target sees. ``cephfit.sweep.sweep_plan.Sweep`` implements it."""

    @property
    def name(self) -> str:
        """Short, safe in file names."""

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """The default first; without configurations that an optimiser proposes during the run."""

    @property
    def measurement(self) -> Measurement:
        """The same for all configurations."""

    @property
    def is_search(self) -> bool:
        """Whether an optimiser adds configurations during the run."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The planned runs, in order."""

    def changed_to(self, configurations: tuple[Configuration, ...], measurement: Measurement) -> "PlannedSweep":
        """Return the same sweep with other configurations and another measurement."""


_ASSUMED_RATE = 100.0 * (1 << 20)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Durations of the steps of a sweep in addition to fio's ramp and run time.

    Attributes:
        apply_seconds: applying a configuration whose volumes are filled already.
        cell_seconds: around one fio run: health checks, caches, start and end of fio.
        fill_nbytes_per_s: filling volumes, all clients together.
        source: origin of these durations, as text.
        warm_nbytes_per_s: reading whole volumes before a run with warm caches, all clients together.
        pace: elapsed seconds per requested second of a fio run; 1 except in a simulation.
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
