"""A clone of a workload: phases of fio that repeat the accesses of a profile, and the time of one pass."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

PASSES_PER_SECOND = "passes/s"
"""Metric of a clone: passes through all accesses of its profile per second, the inverse of the run time."""

CLONE_ERROR = 0.1
"""Standard deviation of the log of a clone's relative performance over the workload's: an assumption.

It is half of the error assumed for a model (``ASSUMED_MODEL_ERROR`` in ``mapper/decisions/probe.py``): the clone
has the workload's sizes, alignment, mix, depths and flushes on the real configuration, and lacks the order of its
accesses and what depends on their results. It is to be replaced by the error of clones of workloads that were
really run.
"""

MOST_CANDIDATES = 4
"""Most configurations of a probe, with the default: about ten minutes on a small cluster."""


@dataclass(frozen=True, slots=True)
class ClonePhase:
    """Accesses of one depth and alignment, issued as one mix.

    Attributes:
        name: of the phase, and of fio's section.
        options: fio's options for it, one ``key=value`` each, without file, size and run time.
        accesses: their number in one pass.
        seconds: expected time of one pass in this phase, with pauses: it decides on the share of the run time.
        paused_seconds: pauses in one pass, part of the phase's time.
        in_background: whether the workload does not wait for these accesses.
    """

    name: str
    options: tuple[str, ...]
    accesses: float
    seconds: float
    paused_seconds: float
    in_background: bool


@dataclass(frozen=True, slots=True)
class WorkloadClone:
    """A workload as phases that run one after the other.

    Attributes:
        profile: name of the workload.
        phases: at least one.
        idle_seconds: time of one pass without an access outstanding; the phases' pauses are a part of it.
        behind_seconds: time of the accesses in the background in the trace, which idle time can hide.
        nbytes: size of the used part of the volume.
        notes: what the clone does not reproduce.
    """

    profile: str
    phases: tuple[ClonePhase, ...]
    idle_seconds: float
    behind_seconds: float
    nbytes: int
    notes: tuple[str, ...] = ()

    def seconds_of_pass(self, seconds_per_access: Mapping[str, float]) -> float:
        """Return the time of one pass, in seconds.

        It adds up as in the model ``waiting`` (docs/mathematics.md): idle time + foreground + what is left of the
        background. The share of the background that idle time hid in the trace stays hidden, until the background
        takes longer than all that can hide it.

        Args:
            seconds_per_access: by the name of the phase, pauses included.
        """
        spent = {p.name: p.accesses * seconds_per_access[p.name] for p in self.phases}
        foreground = sum(spent[p.name] - p.paused_seconds for p in self.phases if not p.in_background)
        background = sum(spent[p.name] for p in self.phases if p.in_background)
        spare = self.idle_seconds + self.behind_seconds
        hidden = self.idle_seconds / spare if self.behind_seconds else 0.0
        hiding = self.idle_seconds + hidden * self.behind_seconds + (1 - hidden) * background
        return foreground + max(hiding, background)

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return {**asdict(self), "phases": [{**asdict(p), "options": list(p.options)} for p in self.phases]}
