"""One target's part of `cephfit sweep run`: open it, measure, leave it as it was."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from cephfit.core.values.run import BESIDE_DOCUMENT
from cephfit.operations.cluster_options import ClusterOptions, is_existing_cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cephfit.core.protocols import Progress
    from cephfit.core.values.run import Run
    from cephfit.results.store.sample_store import Store

_Concluded = TypeVar("_Concluded")


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked for. It goes to other processes: plain values only.

    Attributes:
        file: sweep file or name of one.
        store: of the results.
        cluster: how to reach a cluster that cephfit did not make.
        apply: leave to change such a cluster.
        new: begin a new run, also where one is unfinished.
        keep: leave the target as it is at the end.
        health_limit: seconds that an unhealthy target is waited for.
        profile_file: of the workload that configurations race for.
        model: that predicts it.
        beside: all targets of the command, in its order, where they are several.
    """

    file: str
    store: str
    cluster: ClusterOptions
    apply: bool
    new: bool
    keep: bool
    health_limit: float
    profile_file: Path | None
    model: str | None
    beside: tuple[str, ...] = ()


def measured(
    request: Request, target_text: str, progress: Progress, conclude: Callable[[Store, Run], _Concluded]
) -> _Concluded:
    """Measure on one target.

    Args:
        conclude: takes the store, which is still open, and the finished run.

    Returns:
        What ``conclude`` returns.

    Raises:
        CephfitError: see ``sweep.runner.run_sweep``. What was measured is in the store.
    """
    from cephfit.operations.sweep_goal import goal_of
    from cephfit.operations.target_choice import open_target
    from cephfit.results.store.sample_store import Store
    from cephfit.sweep.declaration.sweep_file import find_sweep, read_sweep
    from cephfit.sweep.execution.preflight import require_healthy
    from cephfit.sweep.execution.run_begin import engine_of
    from cephfit.sweep.execution.run_progress import times_on
    from cephfit.sweep.execution.runner import run_sweep

    sweep = read_sweep(find_sweep(request.file))
    with ExitStack() as stack:
        # Before the store: a target that is not there leaves no empty store behind.
        target = open_target(
            target_text,
            for_change=True,
            progress=progress,
            ioengine=sweep.measurement.ioengine,
            cluster=request.cluster,
            leave=request.apply,
        )
        stack.callback(target.close)
        if is_existing_cluster(target_text):
            require_healthy(target)
        engine = engine_of(target, sweep.measurement)
        results = stack.enter_context(Store.open(request.store, create=True))
        resume = None
        if not request.new:
            resume = results.unfinished_run(sweep_digest=sweep.digest, target=target.name)
        if resume is not None:
            progress.note(f"going on with run {resume.run_id}")
        finished = run_sweep(
            sweep,
            target,
            results,
            progress,
            resume=resume,
            engine=engine,
            times=times_on(target, results),
            health_limit_seconds=request.health_limit,
            goal=goal_of(request.profile_file, request.model, resume=resume),
        )
        if request.beside:
            order = {"number": request.beside.index(target_text), "targets": list(request.beside)}
            results.put_document(finished.run_id, BESIDE_DOCUMENT, order)
        if not request.keep:
            target.reset()
        return conclude(results, finished)
