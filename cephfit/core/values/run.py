"""Runs of a sweep, the kinds of documents that a store keeps with a run, and the identity of a run's cluster."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cephfit.core.tabular import Table, Tabular
from cephfit.core.units import NS_PER_S

SIMULATED = "SIMULATED: these figures come from a model, not from a disk"
"""Shown with all figures of a simulated run."""

IMPORTED_FACT = "imported"
"""Key of the facts of an imported run: number of files, and their formats."""
IMPORTED_OUTPUT = "imported output"
"""Key of the JSON text in which the content of an imported file is kept."""
IMPORTED = (
    "IMPORTED: cephfit did not measure these figures, so its checks did not apply: health, caches, an independent "
    "count. Repeats of one number are read as one round; what changed between configurations over time appears as "
    "a difference between them"
)
"""Shown with all figures of an imported run."""

RUN_COLUMNS = ("run", "sweep", "target", "created", "finished", "simulated")
"""Columns of a table of runs."""


def new_run_id(name: str, created_ns: int) -> str:
    """Return a unique id from a name and a time in ns since the epoch: ``quick-20261121T101500-3f9a``."""
    return f"{name}-{datetime.fromtimestamp(created_ns // NS_PER_S, UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class Run(Tabular):
    """One run of one sweep on one target; it may be interrupted and continued any number of times.

    Attributes:
        run_id: unique, safe in file names and RBD image names: ``quick-20261121T101500-3f9a``.
        sweep_name: the sweep's name.
        sweep_text: the original sweep file, unchanged.
        sweep_digest: SHA-256 of the file's meaning (without comments and layout), hex.
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
        """Whether the figures come from a model instead of a disk."""
        return self.target.startswith("simulated") or bool(self.facts.get("simulated"))

    @property
    def is_imported(self) -> bool:
        """Whether the figures come from outputs of benchmarks that cephfit did not run."""
        return IMPORTED_FACT in self.facts

    @property
    def created(self) -> datetime:
        """Start time in UTC."""
        return datetime.fromtimestamp(self.created_ns // NS_PER_S, UTC)

    @property
    def origin_notes(self) -> tuple[str, ...]:
        """What readers must know about the origin of the figures; empty if cephfit measured them on a disk."""
        return (*((SIMULATED,) if self.is_simulated else ()), *((IMPORTED,) if self.is_imported else ()))

    def _table(self) -> Table:
        rows = ((self.run_id, self.sweep_name, self.target, self.created, self.finished, self.is_simulated),)
        return Table(f"Run {self.run_id}", RUN_COLUMNS, rows, self.origin_notes)


PROFILE_DOCUMENT = "profile"
"""Profile of the mapped workload; for a named load the kind is that of ``kind_of`` in ``sample_store``."""
PREDICTIONS_DOCUMENT = "predictions"
"""Predictions for that workload; likewise."""
WORKLOAD_PROFILE_DOCUMENT = "workload profile"
"""Profile of a workload that was run (``cephfit verify``); the kind ends with its name, as that of ``kind_of``."""
VERIFICATION_DOCUMENT = "verification"
"""Assessment of the predictions by runs of the workload."""
PROBE_DOCUMENT = "probe"
"""Predictions before and after runs of a clone (``cephfit probe``); the kind ends with the name of the profile."""
PROBE_PREFIX = "probe:"
"""Begins the name of a workload that is a clone: it repeats the accesses of a profile, and verifies nothing."""
STOPPING_DOCUMENT = "stopping"
"""Decisions of races, and the repeats that they saved."""
TRIALS_DOCUMENT = "trials"
"""Configurations that an optimiser proposed."""
CONTINUATIONS_DOCUMENT = "continuations"
"""Other program versions with which a run was continued."""
MEASURING_DOCUMENT = "measuring"
"""The process that measures a run; empty after it has ended."""
IMPORTED_DOCUMENT = "imported files"
"""Files of an imported run: name by SHA-256, those without figures included."""
TARGETS_DOCUMENT = "targets"
"""Position of the run's target among several targets of one command."""

CLUSTER = "fsid"
"""Key of a target's facts: the cluster's identifier, if the target is a cluster."""


def is_another_cluster(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two sets of facts are of different clusters. A lab that was created again is another cluster.

    Targets without an identifier are compared by name.
    """
    return None not in (before.get(CLUSTER), now.get(CLUSTER)) and before[CLUSTER] != now[CLUSTER]
