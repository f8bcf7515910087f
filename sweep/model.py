"""What a sweep file says, as frozen values."""

from dataclasses import dataclass

from cephfit.configuration import Configuration
from cephfit.measurement import Measurement, Step
from cephfit.sweep.design.model import Design, Search
from cephfit.sweep.stopping import Stopping


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
        leaves_out_gone: whether options that a cluster does not have are left out of configurations; otherwise
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
    leaves_out_gone: bool = False

    def configuration(self, name: str) -> Configuration:
        return next(c for c in self.configurations if c.name == name)

    @property
    def is_search(self) -> bool:
        """Whether an optimiser adds configurations on the way."""
        return self.search is not None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The planned runs, in order."""
        from cephfit.sweep.plan import plan_of

        return plan_of(self).steps
