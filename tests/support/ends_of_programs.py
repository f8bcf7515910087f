"""What ends a program in the middle of a sweep, for tests of what the next one does."""

from cephfit.measure.engine import CellOutcome, CellRun
from cephfit.targets.simulated import SimulatedEngine, SimulatedTarget


class EndOfProgramError(Exception):
    """Represents anything that ends a program."""


class StopsAfter(SimulatedEngine):
    """Ends the program when it is asked for one run more."""

    def __init__(self, target: SimulatedTarget, n_runs: int) -> None:
        super().__init__(target)
        self.left = n_runs

    def run(self, run: CellRun) -> CellOutcome:
        if self.left == 0:
            raise EndOfProgramError
        self.left -= 1
        return super().run(run)
