"""Which real workload a person means, and how it is run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cephfit.protocols import Target, Workload
    from cephfit.sweep.guest.tracing import GuestTrace
    from cephfit.sweep.model import CacheCondition
    from cephfit.sweep.workload_trial import Trial

WORKLOADS = ("pgbench",)

workload_option = click.option(
    "--workload", type=click.Choice(WORKLOADS), default=WORKLOADS[0], show_default=True, help="Workload to run."
)

_ROOM = 1.25
"""Volume size over what the workload says it needs: a file system gets slower when it is nearly full."""


def trial_of(
    target: Target,
    *,
    scale: int | None,
    repeats: int,
    seconds: float,
    seed: int,
    cache: CacheCondition,
    observe: Callable[[Path], AbstractContextManager[object]] = nullcontext,
    collect: Callable[[GuestTrace], None] | None = None,
) -> Trial:
    """pgbench, sized for its volume, in a guest where the target has such. On a lab, the disks' limits are lifted
    while nothing is measured.

    Args:
        target: where it will run.
        scale: of the database; None takes the workload's own.
        repeats: runs per configuration.
        seconds: of each run.
        seed: of the order of runs.
        cache: the condition of the cluster's caches before each run.
        observe: entered around each measured run with the client's device.
        collect: hears the trace of each measured run in a guest, which then takes one.

    Raises:
        InputError: the target is a simulation.
    """
    from cephfit.errors import InputError
    from cephfit.lab.guest_pgbench import GuestPgBench, spec_of
    from cephfit.lab.pgbench import PgBench, PgBenchSpec
    from cephfit.lab.target import LabTarget
    from cephfit.sweep.abilities import DoesErrands
    from cephfit.sweep.workload_trial import Trial
    from cephfit.units import MIB

    if target.facts().get("simulated"):
        raise InputError(
            "a simulated cluster has no disks for a real workload",
            where=target.name,
            remedy="name a real target, such as lab; `cephfit map` and `cephfit report` work without one",
        )
    workload: Workload
    if isinstance(target, DoesErrands):
        spec = spec_of(scale)
        workload = GuestPgBench(target, spec, collect=collect)
    else:
        spec = PgBenchSpec() if scale is None else PgBenchSpec(scale=scale)
        unmeasured = target.full_speed if isinstance(target, LabTarget) else nullcontext
        workload = PgBench(spec, unmeasured=unmeasured, observe=observe)
    nbytes = -int(-spec.database_nbytes * _ROOM // MIB) * MIB
    return Trial(workload, nbytes, repeats=repeats, seconds=seconds, seed=seed, cache=cache)
