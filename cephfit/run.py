"""A run of a sweep: what it was, where and when."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SIMULATED = "SIMULATED: these figures come from a model, not from a disk"
"""What everything says that shows figures of a simulated run."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one sweep on one target; it may be interrupted and continued any number of times.

    Attributes:
        run_id: unique, safe in file names and RBD image names: ``quick-20261121T101500-3f9a``.
        sweep_name: the sweep's name.
        sweep_text: the sweep file as it was, to the byte.
        sweep_digest: SHA-256 of what the file means (comments and layout do not count), hex.
        target: the target's name, for example ``lab:default``.
        seed: of the order of runs.
        created_ns: wall clock, ns since the epoch.
        facts: versions of everything, the machine, the cluster's layout, clocks. JSON values only.
        finished: every sample of the plan is in a terminal state.
    """

    run_id: str
    sweep_name: str
    sweep_text: str
    sweep_digest: str
    target: str
    seed: int
    created_ns: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    finished: bool = False

    @property
    def is_simulated(self) -> bool:
        """Whether a model made the figures, and no disk did."""
        return self.target.startswith("simulated") or bool(self.facts.get("simulated"))
