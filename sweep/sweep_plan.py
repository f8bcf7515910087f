"""Sweeps as frozen values, and the order of their runs.

What a sweep file says, as frozen values.

From a sweep to the order of its runs.

One round per repeat; each round applies every configuration once, in an order of its own, and under each measures
every cell once, in an order of its own again. So a drift of the machine meets all configurations alike and does
not look like the effect of one (rule 6 of the design). The orders come from the sweep's seed alone.
"""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.measurement import ASSUMED_TIMES, CacheCondition, Measurement, Step, StepTimes
from cephfit.sweep.design.factorial_design import Design, Search
from cephfit.sweep.racing.stopping import Stopping


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
        designs: that gave some of the configurations.
        search: an optimiser's task; its configurations are found on the way.
        stopping: when repeats are enough; None to take them all.
        omits_gone_options: whether options that a cluster does not have are left out of configurations; otherwise
            these are skipped whole.
    """

    name: str
    description: str
    configurations: tuple[Configuration, ...]
    measurement: Measurement
    accept_risk: tuple[str, ...]
    text: str
    digest: str
    designs: tuple[Design, ...] = ()
    search: Search | None = None
    stopping: Stopping | None = None
    omits_gone_options: bool = False

    def configuration(self, name: str) -> Configuration:
        return next(c for c in self.configurations if c.name == name)

    @property
    def is_search(self) -> bool:
        """Whether an optimiser adds configurations on the way."""
        return self.search is not None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The planned runs, in order."""

        return plan_of(self).steps


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps of a sweep, in order."""

    steps: tuple[Step, ...]

    @property
    def n_runs(self) -> int:
        """fio runs, when none has to be taken again; each gives one sample per client."""
        return sum(len(step.cells) for step in self.steps)


def plan_of(sweep: Sweep) -> Plan:
    """The plan of a sweep; the same sweep gives the same plan everywhere and always."""
    measurement = sweep.measurement
    seed = measurement.seed
    names = [c.name for c in sweep.configurations]
    steps: list[Step] = []
    for repeat in range(measurement.repeats):
        for name in _shuffled(names, f"{seed}/{repeat}"):
            for load in _shuffled(measurement.load_names, f"{seed}/{repeat}/{name}/loads"):
                words = f"{seed}/{repeat}/{name}" + (f"/{load}" if load else "")
                order = _shuffled([str(c) for c in measurement.under(load).cells], words)
                steps.append(Step(repeat, name, tuple(Cell.parse(c) for c in order), load))
    return Plan(tuple(steps))


def io_seed(seed: int, cell: Cell, repeat: int, client: str) -> int:
    """Seed of fio's random offsets, positive and below 2**62.

    Configuration and load do not enter: in one round every configuration is asked for the same blocks in the same
    order, so that luck with offsets does not look like the effect of a setting.
    """
    return int.from_bytes(_hash(f"{seed}/{cell}/{repeat}/{client}")[:8], "big") >> 2 or 1


def _shuffled(words: Iterable[str], seed: str) -> list[str]:
    """A uniformly random order fixed by ``seed``: by hash, which stays the same over releases of Python."""
    return sorted(words, key=lambda word: _hash(f"{seed}/{word}"))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def run_seconds(measurement: Measurement, times: StepTimes) -> float:
    """Expected duration of one fio run with what is around it, in seconds."""
    asked = measurement.ramp_seconds + measurement.run_seconds
    return times.pace * asked + times.cell_seconds + warmed_nbytes(measurement) / times.warm_nbytes_per_s


def warmed_nbytes(measurement: Measurement) -> int:
    """Bytes that are read before one run, so that caches are warm; none before runs with cold caches."""
    is_warm = measurement.cache is CacheCondition.WARM
    return measurement.n_clients * measurement.volume_nbytes if is_warm else 0


def expected_seconds(
    sweep: Sweep, plan: Plan, times: StepTimes = ASSUMED_TIMES, *, skipped: Collection[str] = ()
) -> float:
    """Expected duration of a whole sweep in seconds, if nothing has to be taken again.

    Args:
        sweep: whose plan it is.
        plan: of the sweep.
        times: of the steps.
        skipped: names of configurations that the target cannot be brought into; they take no time.
    """
    measurement = sweep.measurement
    steps = [step for step in plan.steps if step.configuration not in skipped]
    filled = len({step.configuration for step in steps}) * measurement.most_clients * measurement.volume_nbytes
    return (
        len({(step.repeat, step.configuration) for step in steps}) * times.apply_seconds
        + sum(len(step.cells) * run_seconds(measurement.under(step.load), times) for step in steps)
        + filled / times.fill_nbytes_per_s
    )
