"""Runs of a sweep: what, where and when; which documents a store keeps with them.

A run of a sweep: what it was, where and when.

The kinds of documents that a store keeps with a run, by which rooms find what others concluded.

Which cluster a target is: a lab that was removed and made again has the same name and is another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cephfit.core.tabular import Table, Tabular

SIMULATED = "SIMULATED: these figures come from a model, not from a disk"
"""What everything says that shows figures of a simulated run."""

RUN_COLUMNS = ("run", "sweep", "target", "created", "finished", "simulated")
"""Of a table of runs."""


@dataclass(frozen=True, slots=True)
class Run(Tabular):
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

    @property
    def created(self) -> datetime:
        """When it was begun, in UTC."""
        return datetime.fromtimestamp(self.created_ns // 1_000_000_000, UTC)

    def _table(self) -> Table:
        rows = ((self.run_id, self.sweep_name, self.target, self.created, self.finished, self.is_simulated),)
        return Table(f"Run {self.run_id}", RUN_COLUMNS, rows, (SIMULATED,) if self.is_simulated else ())


PROFILE_DOCUMENT = "profile"
"""Of the workload that was mapped; under a load of its own as ``results.store.kind_of`` spells it."""
PREDICTIONS_DOCUMENT = "predictions"
"""For that workload; likewise."""
VERIFICATION_DOCUMENT = "verification"
"""What the workload gave when it was run."""
STOPPING_DOCUMENT = "stopping"
"""What races decided, and what they saved."""
TRIALS_DOCUMENT = "trials"
"""Configurations that an optimiser proposed."""
CONTINUATIONS_DOCUMENT = "continuations"
"""With which other versions of programs a run was continued."""
MEASURING_DOCUMENT = "measuring"
"""Which process measures a run; empty when it has ended."""
BESIDE_DOCUMENT = "beside"
"""Which of several targets of one command a run was made on."""

CLUSTER = "fsid"
"""Key of a target's facts: the cluster's own identifier, where it is a cluster."""


def is_another_cluster(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two sets of facts are of different clusters; targets without an identifier are told by name."""
    return None not in (before.get(CLUSTER), now.get(CLUSTER)) and before[CLUSTER] != now[CLUSTER]
