"""Options that a cluster does not have, left out of the configurations that name them."""

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
    """A sweep as it can be on a target.

    Attributes:
        sweep: without the settings that the target does not have, where its file says so.
        omitted: for each configuration that is not as its file says, one reason per setting left out.
        unsupported: the configurations that the target cannot be brought into, and will be skipped.
    """

    sweep: Sweep
    omitted: Reasons
    unsupported: Reasons


def fitted_to(target: Target, sweep: Sweep) -> Fitted:
    """The sweep as it can be on this target; options are left out where its file says ``gone_options: leave-out``.

    A configuration of which something is left is measured without the settings that the target cannot take; one of
    which nothing is left stays as it is, and so will be skipped.

    Raises:
        InputError: as ``unsupported_by``: a typing error ends the sweep, also where options are left out. Or what
            the target was told does not fit the sweep.
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
