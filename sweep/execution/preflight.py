"""Before a run: what a target supports and reports of a sweep, its engine and facts, a new or continued run."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cephfit import __version__
from cephfit.ceph.options.option_catalogue import Catalogue, WrongValueError, nearest_option, unknown_option
from cephfit.ceph.options.option_history import history_of
from cephfit.ceph.pools.osd_capacity import IN_MEMORY, MEMORY_TARGET, fits_note
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import Progress, Target
from cephfit.core.values.configuration import Configuration, Partition
from cephfit.core.values.measurement import MICRO, RADOS_BENCH, RBD_BENCH, CacheCondition, Measurement
from cephfit.core.values.sample import CLUSTER, Run, is_another_cluster, new_run_id
from cephfit.core.waiting import wait_until_clear
from cephfit.measure.engine import Engine
from cephfit.measure.fio.fio_local import FioEngine
from cephfit.results.report.run_notes import keep_continuation
from cephfit.results.store.sample_store import Store
from cephfit.sweep.sweep_plan import GOAL, Sweep
from cephfit.targets.abilities import (
    BringsEngine,
    ChecksSweep,
    CountsTraffic,
    ExportsFiles,
    HasCatalogue,
    JudgesConfigurations,
    KeepsToImages,
    MayKeepCaches,
    Previews,
    ReportsLimits,
    WarnsOfSettings,
)

_SETTLING_SECONDS = 15.0
"""The manager learns of changed PGs every 5 s (mgr_stats_period), so effects of recent changes pass."""


def unsupported_by(target: Target, sweep: Sweep) -> Mapping[str, tuple[str, ...]]:
    """Return the configurations that the target does not support, each with its reasons; they will be skipped.

    Raises:
        InputError: no known release of Ceph has the option, or the option does not accept the value. This is a
            typing error: a sweep that skipped it would run for hours and answer another question.
    """
    wants_cold = sweep.measurement.cache is CacheCondition.COLD
    if wants_cold and isinstance(target, MayKeepCaches) and (why := target.why_caches_stay()):
        raise InputError(
            f"this sweep needs cold caches, and {why}",
            where=f"sweep {sweep.name}, measurement",
            remedy="measure with `cache: warm`, in a copy of the sweep file",
        )
    if not isinstance(target, JudgesConfigurations):
        return {}
    try:
        found = target.unsupported(sweep.configurations)
    except WrongValueError as error:
        where = f"sweep {sweep.name}, line {line_of(error.key, sweep.text)}"
        raise WrongValueError(error.key, error.what, f"{where}, {error.where}") from None
    if isinstance(target, HasCatalogue):
        _refuse_unknown_options(target.catalogue(), sweep)
    return found


def _refuse_unknown_options(catalogue: Catalogue, sweep: Sweep) -> None:
    """Refuse options that do not exist.

    Raises:
        InputError: neither this cluster nor any known release has the option.
    """
    for configuration in sweep.configurations:
        for setting in configuration.within(Partition.CEPH):
            key = setting.key
            if history_of(key) is None and catalogue.find(key) is None:
                line = line_of(key, sweep.text)
                raise InputError(
                    unknown_option(key),
                    where=f"sweep {sweep.name}, line {line}, configuration {configuration.name}",
                    remedy=nearest_option(key, catalogue.names()) or "`ceph config ls` lists the options",
                )


def require_healthy(target: Target) -> None:
    """Refuse to begin a run on an unhealthy existing cluster.

    An unfinished run may continue: the runner waits until the cluster is healthy again.

    Raises:
        ClusterError: the cluster is not healthy; states why.
    """
    if isinstance(target, Previews) and target.undoings():
        return
    health = target.health()
    if not health.ok:
        raise ClusterError(
            f"the cluster is not healthy, so nothing is changed on it: {'; '.join(health.reasons)}",
            where=target.name,
            remedy="repair it first; mute known warnings that do not affect performance: `ceph health mute CODE`",
        )


def await_healthy(target: Target, *, seconds: float | None = None) -> None:
    """Wait until a cluster is healthy before its permanent pools are changed.

    The wait covers the effects of cephfit's own earlier changes.

    Raises:
        ClusterError: the cluster does not become healthy in time; states why.
    """
    if why := wait_until_clear(
        lambda: "; ".join(target.health().reasons),
        seconds=_SETTLING_SECONDS if seconds is None else seconds,
        poll_seconds=1.0,
    ):
        raise ClusterError(
            f"the cluster is not healthy, so nothing is changed on it: {why}",
            where=target.name,
            remedy="repair it first, or add --although-unhealthy if this change is what repairs it",
        )


def without_effect_by(target: Target, sweep: Sweep) -> Mapping[str, tuple[str, ...]]:
    """Return configurations with settings that have no effect on the target, such as FileStore's on BlueStore."""
    return target.without_effect(sweep.configurations) if isinstance(target, WarnsOfSettings) else {}


def limits_by(target: Target, sweep: Sweep) -> Mapping[str, tuple[str, ...]]:
    """Return configurations whose clients are limited by something other than storage, such as a cloud's QoS."""
    return target.limits(sweep.configurations) if isinstance(target, ReportsLimits) else {}


def line_of(key: str, text: str) -> int:
    """Return the line with an option, in any of the spellings that Ceph accepts."""
    word = re.compile(r"\b" + re.sub("_", "[ _-]", re.escape(key)) + r"\b")
    return next((n for n, line in enumerate(text.splitlines(), start=1) if word.search(line)), 1)


Reasons = Mapping[str, tuple[str, ...]]
"""By the name of a configuration."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A sweep that is adapted to a target.

    Attributes:
        sweep: without the settings that the target does not have, if its file requests this.
        omitted: for each changed configuration, one reason per omitted setting.
        unsupported: configurations that the target does not support; they will be skipped.
    """

    sweep: Sweep
    omitted: Reasons
    unsupported: Reasons


def fitted_to(target: Target, sweep: Sweep) -> Fitted:
    """Return the sweep adapted to this target; ``gone_options: leave-out`` in its file omits unsupported options.

    A configuration is measured with the settings that the target supports. A configuration without any supported
    setting stays unchanged, so it will be skipped.

    Raises:
        InputError: as ``unsupported_by``: a typing error ends the sweep, even where options are omitted. Or the
            target's options do not fit the sweep.
    """
    if isinstance(target, ChecksSweep):
        target.check(sweep)
    unsupported = unsupported_by(target, sweep)
    if not sweep.omits_gone_options or not isinstance(target, JudgesConfigurations):
        return Fitted(sweep, {}, unsupported)
    omitted: dict[str, tuple[str, ...]] = {}
    configurations = list(sweep.configurations)
    for i, configuration in enumerate(configurations):
        if configuration.name not in unsupported:
            continue
        kept = tuple(
            setting
            for setting in configuration.settings
            if not target.unsupported([Configuration(configuration.name, (setting,))])
        )
        if kept:
            configurations[i] = replace(configuration, settings=kept)
            omitted[configuration.name] = tuple(unsupported[configuration.name])
    sweep = replace(sweep, configurations=tuple(configurations))
    return Fitted(sweep, omitted, unsupported_by(target, sweep))


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
        from cephfit.measure.rados_bench import RadosBenchEngine, refuse_among_images

        if isinstance(target, KeepsToImages) and target.only_pool:
            refuse_among_images(target.only_pool)
        return RadosBenchEngine()
    if measurement.engine == RBD_BENCH:
        from cephfit.measure.rbd_bench import RbdBenchEngine

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
