"""Measure a sweep on one target: its goal, open the target, measure, undo all changes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cephfit.core.values.sample import TARGETS_DOCUMENT
from cephfit.operations.measuring.cluster_options import ClusterOptions, is_existing_cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cephfit.core.protocols import Predictor, Progress
    from cephfit.core.values.sample import Run
    from cephfit.results.store.sample_store import Store
    from cephfit.sweep.sweep_plan import Goal


_Concluded = TypeVar("_Concluded")


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of a measurement. It is sent to other processes: plain values only.

    Attributes:
        file: path of a sweep file, or name of a bundled one.
        store: path or URL of the results store.
        cluster: connection options of an existing cluster.
        apply: permission to change an existing cluster.
        new: begin a new run even if one is unfinished.
        keep: leave the last configuration and the volumes on the target.
        health_limit: how long to wait for an unhealthy target, in seconds.
        profile_file: of the workload for which configurations race.
        model: that predicts the workload.
        targets: all targets of the command, in its order, if there are several.
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
    targets: tuple[str, ...] = ()


def measured(
    request: Request, target_text: str, progress: Progress, conclude: Callable[[Store, Run], _Concluded]
) -> _Concluded:
    """Measure a sweep on one target.

    Args:
        request: what to measure.
        target_text: name of the target.
        progress: shows the progress.
        conclude: called with the store, which is still open, and the finished run.

    Returns:
        What ``conclude`` returns.

    Raises:
        CephfitError: see ``run_sweep`` in ``sweep/execution/runner.py``. All completed samples are stored.
    """
    from cephfit.operations.measuring.target_choice import open_target
    from cephfit.results.store.sample_store import Store
    from cephfit.sweep.declaration.sweep_file import find_sweep, read_sweep
    from cephfit.sweep.execution.preflight import engine_of, require_healthy
    from cephfit.sweep.execution.run_progress import times_on
    from cephfit.sweep.execution.runner import run_sweep

    sweep = read_sweep(find_sweep(request.file))
    with ExitStack() as stack:
        # The target first: if it does not exist, no empty store is left.
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
            progress.note(f"continuing run {resume.run_id}")
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
        if request.targets:
            order = {"number": request.targets.index(target_text), "targets": list(request.targets)}
            results.put_document(finished.run_id, TARGETS_DOCUMENT, order)
        if not request.keep:
            target.reset()
        return conclude(results, finished)


def goal_of(profile_file: Path | None, model: str | None, *, resume: Run | None = None) -> Goal:
    """Return the goal that the arguments give; a continued run supplies what they leave open.

    Args:
        profile_file: of the workload; None: the profile with which the run began.
        model: that predicts the workload; None: the run's, else the first of ``mapper.MODELS``.
        resume: the run that is continued.

    Raises:
        InputError: the file cannot be read or is no profile.
    """
    from cephfit.core.profile_files import read_profile
    from cephfit.core.values.profile import Profile
    from cephfit.mapper import MODELS, predictor
    from cephfit.sweep.sweep_plan import GOAL, Goal

    begun: Mapping[str, Any] = (resume.facts.get(GOAL) if resume is not None else None) or {}
    name = model or str(begun.get("model", MODELS[0]))
    profile = None if profile_file is None else read_profile(profile_file)
    if profile is None and begun.get("profile") is not None:
        profile = Profile.from_json(begun["profile"], where="the run's profile")

    def predict_with(confidence: float) -> Predictor:
        return predictor(name, confidence=confidence)

    return Goal(predict_with, name, profile)
