"""What a sweep file says, as frozen values."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cephfit.cells import Cell
from cephfit.configuration import Configuration


class CacheCondition(StrEnum):
    """The state of the caches between client and disk when a cell's run starts."""

    COLD = "cold"
    """Dropped before every run."""
    WARM = "warm"
    """The cell's volume was read once through before the run."""


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

    def to_json(self) -> dict[str, Any]:
        """All of it, by name: for plans that are printed, and for the sweep's digest."""
        return {
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
class Sweep:
    """The configurations to try and how to measure them.

    Attributes:
        name: short, safe in file names.
        description: for people.
        configurations: the default first.
        measurement: the same for all.
        accept_risk: keys of settings that risk data and are wanted all the same.
        text: the file as it was.
        digest: SHA-256 of what the file means, hex.
    """

    name: str
    description: str
    configurations: tuple[Configuration, ...]
    measurement: Measurement
    accept_risk: tuple[str, ...]
    text: str
    digest: str

    def configuration(self, name: str) -> Configuration:
        return next(c for c in self.configurations if c.name == name)
