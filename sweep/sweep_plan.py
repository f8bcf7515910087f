"""Sweeps as frozen values: their goal, when their repeats are enough, and the order of their runs.

A plan has one round per repeat. Each round applies every configuration once, in random order. Under each
configuration it measures every cell once, again in random order. So a drift of the machine affects all
configurations alike and does not look like the effect of one (rule 6 of the design). The orders depend only on the
sweep's seed.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.protocols import Predictor
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Op
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.measurement import ASSUMED_TIMES, CacheCondition, Measurement, Step, StepTimes
from cephfit.core.values.profile import Profile
from cephfit.sweep.factorial_design import Design, Search


class RaceFor(StrEnum):
    """The quantity that decides a race."""

    PROFILE = "profile"
    """The predicted performance of a workload; the command names its profile."""
    CELLS = "cells"
    """The IOPS of every cell, each cell separately."""


class Decide(StrEnum):
    """The result that a race must find."""

    BEST = "best"
    WORST = "worst"
    BOTH = "best-and-worst"


@dataclass(frozen=True, slots=True)
class Stopping:
    """When the repeats of a cell or a configuration are enough; the measurement's ``repeats`` is the maximum.

    Attributes:
        race: the quantity that decides the race; None without a race.
        decide: the result that the race must find.
        margin: differences below this fraction do not matter: 0.02 is 2 %.
        within: measuring a cell of a configuration ends when the half width of its mean's interval is at most this
            fraction of the mean; None for no such limit.
        minimum: repeats before the first decision.
        confidence: joint level of all decisions of one race, over all interim analyses.
    """

    race: RaceFor | None = None
    decide: Decide = Decide.BOTH
    margin: float = 0.02
    within: float | None = None
    minimum: int = 2
    confidence: float = 0.95

    def to_json(self) -> dict[str, Any]:
        """Return all terms, for the sweep's digest and for printed plans."""
        return {
            "race": None if self.race is None else self.race.value,
            "decide": self.decide.value,
            "margin": self.margin,
            "within": self.within,
            "minimum": self.minimum,
            "confidence": self.confidence,
        }


@dataclass(frozen=True, slots=True)
class Sweep:
    """The configurations to try and how to measure them.

    Attributes:
        name: short, safe in file names.
        description: for people.
        configurations: the default first.
        measurement: the same for all configurations.
        accept_risk: keys of settings that risk data and are applied nevertheless.
        text: the text of the file, unchanged.
        digest: SHA-256 of the file's content without names and layout, hex.
        designs: designs that generated some of the configurations.
        search: an optimiser's task, which adds configurations during the run.
        stopping: when repeats are enough; None to take all repeats.
        omits_gone_options: True omits options that a cluster does not have from configurations; False skips
            configurations that have such options.
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
        """Whether an optimiser adds configurations during the run."""
        return self.search is not None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The planned runs, in order."""
        return plan_of(self).steps

    def changed_to(self, configurations: tuple[Configuration, ...], measurement: Measurement) -> "Sweep":
        """Return the same sweep with other configurations and another measurement."""
        return replace(self, configurations=configurations, measurement=measurement)


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps of a sweep, in order."""

    steps: tuple[Step, ...]

    @property
    def n_runs(self) -> int:
        """Number of fio runs without repetitions of invalid ones; each run gives one sample per client."""
        return sum(len(step.cells) for step in self.steps)


def plan_of(sweep: Sweep) -> Plan:
    """Return the plan of a sweep; the same sweep gives the same plan on every machine."""
    measurement = sweep.measurement
    seed = measurement.seed
    names = [c.name for c in sweep.configurations]
    steps: list[Step] = []
    for repeat in range(measurement.repeats):
        for name in _shuffled(names, f"{seed}/{repeat}"):
            for load in _shuffled(measurement.load_names, f"{seed}/{repeat}/{name}/loads"):
                words = f"{seed}/{repeat}/{name}" + (f"/{load}" if load else "")
                cells = {str(cell): cell for cell in measurement.under(load).cells}
                steps.append(Step(repeat, name, tuple(cells[c] for c in _shuffled(cells, words)), load))
    return Plan(tuple(steps))


def n_planned_samples(sweep: Sweep) -> int:
    """Return the number of samples of the full plan: one per configuration, cell, load, repeat and client.

    Args:
        sweep: without the trials of an optimiser, which are in its ``search``.
    """
    measurement, n_configurations = sweep.measurement, len(sweep.configurations)
    if sweep.search is not None:  # each batch after the first measures the default again
        n_configurations += sweep.search.trials + math.ceil(sweep.search.trials / sweep.search.batch) - 1
    loads = [measurement.under(load) for load in measurement.load_names]
    return n_configurations * measurement.repeats * sum(len(load.cells) * load.n_clients for load in loads)


def io_seed(seed: int, cell: Cell, repeat: int, client: str) -> int:
    """Return the seed of fio's random offsets, positive and below 2**62.

    The seed does not depend on configuration or load: in one round every configuration serves the same blocks in
    the same order. So the choice of offsets does not look like the effect of a setting.
    """
    return int.from_bytes(_hash(f"{seed}/{cell}/{repeat}/{client}")[:8], "big") >> 2 or 1


def _shuffled(words: Iterable[str], seed: str) -> list[str]:
    """Return words in a uniformly random order that depends on ``seed``.

    The order comes from a hash, because Python's ``random`` may differ between releases.
    """
    return sorted(words, key=lambda word: _hash(f"{seed}/{word}"))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def run_seconds(measurement: Measurement, times: StepTimes) -> float:
    """Return the expected duration of one fio run, including the time before and after it, in seconds.

    Repetitions of runs that are not steady are not included.
    """
    asked = measurement.ramp_seconds + measurement.run_seconds
    around = times.cell_seconds + measurement.settle_seconds
    if measurement.files is not None:  # written again where the run before has changed them
        around += measurement.n_clients * measurement.files.nbytes / times.fill_nbytes_per_s
    return times.pace * asked + around + warmed_nbytes(measurement) / times.warm_nbytes_per_s


def warmed_nbytes(measurement: Measurement) -> int:
    """Return the bytes that are read before one run to warm the caches; 0 for runs with cold caches."""
    is_warm = measurement.cache is CacheCondition.WARM
    return measurement.n_clients * measurement.volume_nbytes if is_warm else 0


def expected_seconds(
    sweep: Sweep, plan: Plan, times: StepTimes = ASSUMED_TIMES, *, skipped: Collection[str] = ()
) -> float:
    """Return the expected duration of a sweep in seconds, without repetitions of invalid runs.

    Args:
        sweep: the sweep.
        plan: its plan.
        times: durations of the steps.
        skipped: names of configurations that the target does not support; they take no time.
    """
    measurement = sweep.measurement
    steps = [step for step in plan.steps if step.configuration not in skipped]
    volumes = {(step.configuration, step.repeat if measurement.new_volumes else 0) for step in steps}
    filled = len(volumes) * measurement.most_clients * measurement.volume_nbytes
    return (
        len({(step.repeat, step.configuration) for step in steps}) * times.apply_seconds
        + sum(len(step.cells) * run_seconds(measurement.under(step.load), times) for step in steps)
        + filled / times.fill_nbytes_per_s
    )


GOAL = "goal"
"""Key of a run's facts that holds ``Goal.to_json()``, for runs that depend on a goal."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A workload and a way to predict its performance.

    Attributes:
        predictor: returns the predictor for a confidence, with which its intervals hold jointly.
        model: the predictor's name.
        profile: of the workload; None where each cell is decided separately.
    """

    predictor: Callable[[float], Predictor]
    model: str
    profile: Profile | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the goal as a run's facts store it."""
        return {"model": self.model, "profile": None if self.profile is None else self.profile.to_json()}

    def used_cells(self) -> tuple[Cell, ...]:
        """Return the cells that the profile has accesses in, in the order of ``CELLS``; without a profile, all."""
        if self.profile is None:
            return CELLS
        counts = self.profile.cell_counts()
        return tuple(cell for cell in CELLS if counts[cell] > 0)


def needs_profile(sweep: Sweep) -> bool:
    """Return whether a sweep requires a workload's profile."""
    if sweep.search is not None:
        return sweep.search.cell is None
    return sweep.stopping is not None and sweep.stopping.race is RaceFor.PROFILE


def needs_goal(sweep: Sweep) -> bool:
    """Return whether a sweep requires predictions while it runs."""
    return needs_profile(sweep) or (sweep.stopping is not None and sweep.stopping.race is not None)


def check_goal(sweep: Sweep, goal: Goal | None) -> None:
    """Check that the goal fits the sweep.

    Raises:
        InputError: the sweep needs a profile and there is none, or the profile needs cells that are not measured.
    """
    if needs_goal(sweep) and goal is None:
        raise InputError(
            "this sweep races or searches by a prediction, and no model was given",
            where=f"sweep {sweep.name}",
            remedy="name a model with --model, and the workload with --profile",
        )
    if not needs_profile(sweep) or goal is None:
        return
    if goal.profile is None:
        raise InputError(
            "this sweep searches for the best configuration for a workload, and no workload was given",
            where=f"sweep {sweep.name}",
            remedy="name its profile: --profile profile.json (`cephfit trace profile` writes one)",
        )
    if not goal.profile.n_accesses:
        raise InputError(
            "the workload has no accesses",
            where=f"profile {goal.profile.name}",
            remedy="trace the workload while it does I/O, and profile that trace",
        )
    lacking = [cell for cell in goal.used_cells() if cell not in sweep.measurement.cells]
    if lacking:
        raise InputError(
            f"the workload uses cells that this sweep does not measure: {', '.join(map(str, lacking))}",
            where=f"profile {goal.profile.name}, sweep {sweep.name}",
            remedy="add their sizes and patterns to the sweep file",
        )


def cell_profile(cell: Cell) -> Profile:
    """Return the profile of a workload whose accesses are all of one cell."""
    accesses = {op: dict.fromkeys((b.name for b in SIZE_BINS), 0) for op in Op}
    accesses[cell.pattern.op][cell.size.name] = 1_000_000
    return Profile(str(cell), accesses, {op: float(op is cell.pattern.op and cell.pattern.is_random) for op in Op})


def even_profile(measurement: Measurement) -> Profile:
    """Return the profile of a workload that moves the same number of bytes in every measured cell.

    Plans without a workload use it.
    """
    accesses = {op: dict.fromkeys((b.name for b in SIZE_BINS), 0) for op in Op}
    random = {op: dict[str, float]() for op in Op}
    for cell in measurement.cells:
        op, size = cell.pattern.op, cell.size
        accesses[op][size.name] = max(1, (1 << 30) // size.benchmark_nbytes)
        both = {c.pattern.is_random for c in measurement.cells if c.size is size and c.pattern.op is op}
        random[op][size.name] = 0.5 if len(both) == 2 else float(cell.pattern.is_random)
    return Profile("even", accesses, dict.fromkeys(Op, 0.5), random)
