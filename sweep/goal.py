"""The goal of a sweep: a workload, and the model that predicts its performance."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.protocols import Predictor
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Op
from cephfit.core.values.measurement import Measurement
from cephfit.core.values.profile import Profile
from cephfit.sweep.sweep_plan import RaceFor, Sweep

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
