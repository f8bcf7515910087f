"""Preflight: what a target supports of a sweep and reports about it before anything changes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cephfit.ceph.options.option_catalogue import Catalogue, WrongValueError, nearest_option, unknown_option
from cephfit.ceph.options.option_history import history_of
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import Target
from cephfit.core.values.configuration import Configuration, Partition
from cephfit.core.values.measurement import CacheCondition
from cephfit.core.waiting import wait_until_clear
from cephfit.sweep.sweep_plan import Sweep
from cephfit.targets.abilities import (
    ChecksSweep,
    HasCatalogue,
    JudgesConfigurations,
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
