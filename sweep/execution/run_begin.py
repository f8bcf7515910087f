"""The beginning of a run: its engine, the facts about the target, and a new or an unfinished run."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from cephfit import __version__
from cephfit.ceph.pools.osd_capacity import IN_MEMORY, MEMORY_TARGET, fits_note
from cephfit.core.errors import InputError
from cephfit.core.protocols import Progress, Target
from cephfit.core.values.measurement import MICRO, RADOS_BENCH, RBD_BENCH, Measurement
from cephfit.core.values.run import CLUSTER, Run, is_another_cluster, new_run_id
from cephfit.measure.engine import Engine
from cephfit.measure.fio.fio_local import FioEngine
from cephfit.results.statistics.run_caveats import keep_continuation
from cephfit.results.store.sample_store import Store
from cephfit.sweep.goal import GOAL
from cephfit.sweep.sweep_plan import Sweep
from cephfit.targets.abilities import BringsEngine, CountsTraffic, ExportsFiles, KeepsToImages


def engine_of(target: Target, measurement: Measurement) -> Engine:
    """Return the engine for this target: the target's own engine, or the one that the sweep file names.

    Raises:
        InputError: the target may change images only, and the engine creates other objects; or the target's own
            engine does not measure files.
    """
    if measurement.engine == MICRO:
        return _micro_engine(target)
    if isinstance(target, BringsEngine):
        return target.engine()
    # Imported here because they need librados, which a machine that measures files or simulations may lack.
    if measurement.engine == RADOS_BENCH:
        from cephfit.measure.ceph_bench.rados_bench import RadosBenchEngine, refuse_among_images

        if isinstance(target, KeepsToImages) and target.only_pool:
            refuse_among_images(target.only_pool)
        return RadosBenchEngine()
    if measurement.engine == RBD_BENCH:
        from cephfit.measure.ceph_bench.rbd_bench import RbdBenchEngine

        return RbdBenchEngine()
    return FioEngine()


def _micro_engine(target: Target) -> Engine:
    from cephfit.measure.micro.micro_engine import MicroEngine

    if isinstance(target, BringsEngine):
        raise InputError(
            f"{target.name} brings its own engine, which measures blocks, not operations on files",
            where="measurement.engine",
            remedy="use engine: fio, or a target whose clients have volumes on this machine",
        )
    traffic = target.traffic_counter() if isinstance(target, CountsTraffic) else None
    if isinstance(target, ExportsFiles):
        return MicroEngine(place_of=target.files_of, traffic=traffic)
    return MicroEngine(traffic=traffic)


def begun(
    sweep: Sweep,
    target: Target,
    store: Store,
    progress: Progress,
    facts: Mapping[str, Any],
    *,
    resume: Run | None,
) -> Run:
    """Return the run to continue, or a new one, which is then in the store.

    Args:
        sweep: the sweep to measure.
        target: the target to measure on.
        store: receives a new run.
        progress: shows what has changed since the run began.
        facts: current facts about the target and the engine.
        resume: an unfinished run; None begins a new one.

    Raises:
        InputError: ``resume`` is of another sweep, target, cluster or goal.
    """
    if resume is None:
        run = _new_run(sweep, target, {**facts, **_about_caches(sweep, facts)})
        store.add_run(run)
        return run
    run = resume
    if (run.sweep_digest, run.target) != (sweep.digest, target.name):
        raise InputError(
            f"run {run.run_id} is of another sweep or target ({run.sweep_name} on {run.target})",
            remedy="begin a new run: --new",
        )
    if is_another_cluster(run.facts, facts):
        raise InputError(
            f"run {run.run_id} was begun on another cluster of the name {run.target}",
            where=f"fsid {run.facts[CLUSTER]}, now {facts[CLUSTER]}",
            remedy="a run must not mix figures of two clusters; begin a new run with --new",
        )
    if run.facts.get(GOAL) != facts.get(GOAL):
        raise InputError(
            f"run {run.run_id} was begun for another workload or with another model",
            remedy="use the profile and the model that it was begun with, or begin a new run: --new",
        )
    if changes := _changed(run.facts, facts):
        keep_continuation(store, run.run_id, changes, at_ns=time.time_ns())
    for change in changes:
        progress.note(f"since run {run.run_id} began, {change}")
    return run


def facts_of(target: Target, engine: Engine) -> dict[str, Any]:
    """Return the facts that a run keeps about target, engine and clocks. JSON values only.

    Raises:
        HostError: the engine cannot work on this machine.
    """
    # The engine comes first, so that a missing fio is found before anything changes.
    measured_by = dict(engine.facts())
    return {
        **target.facts(),
        "cephfit": __version__,
        "engine": measured_by,
        "clocks": {"wall_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()},
    }


def _about_caches(sweep: Sweep, facts: Mapping[str, Any]) -> dict[str, str]:
    """Return a caveat for the report where the OSDs' memory holds all data that is read."""
    targets = [int(osd[MEMORY_TARGET]) for osd in facts.get("osds", ()) if MEMORY_TARGET in osd]
    note = fits_note(sweep.measurement, targets)
    return {IN_MEMORY: note} if note else {}


def _new_run(sweep: Sweep, target: Target, facts: Mapping[str, Any]) -> Run:
    created_ns = time.time_ns()
    return Run(
        run_id=new_run_id(sweep.name, created_ns),
        sweep_name=sweep.name,
        sweep_text=sweep.text,
        sweep_digest=sweep.digest,
        target=target.name,
        seed=sweep.measurement.seed,
        created_ns=created_ns,
        facts=facts,
    )


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return which programs have changed their version since the run began."""
    keys = [k for k in now if k in ("cephfit", "engine") or "version" in k]
    return [change for k in keys for change in _differences(k, before.get(k), now[k])]


def _differences(what: str, before: Any, now: Any) -> Iterator[str]:
    before, now = _programs(before), _programs(now)
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*before, *now]):
            yield from _differences(f"{what}.{key}", before.get(key), now.get(key))
    elif before != now:
        yield f"{what} changed from {_or_unknown(before)} to {_or_unknown(now)}"


def _programs(fact: Any) -> Any:
    """Return the versions of daemons without their counts, which ``ceph versions`` adds."""
    if isinstance(fact, Mapping) and fact and all(type(n) is int for n in fact.values()):
        return ", ".join(sorted(map(str, fact)))
    return fact


def _or_unknown(value: Any) -> Any:
    return "unknown" if value is None else value
