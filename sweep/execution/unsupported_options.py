"""Omit options that a cluster does not have from the configurations that name them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cephfit.core.protocols import Target
from cephfit.core.values.configuration import Configuration
from cephfit.sweep.execution.preflight import unsupported_by
from cephfit.sweep.sweep_plan import Sweep
from cephfit.targets.abilities import ChecksSweep, JudgesConfigurations

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
