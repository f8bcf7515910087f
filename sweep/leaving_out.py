"""Options that a cluster does not have, left out of the configurations that name them."""

from collections.abc import Mapping
from dataclasses import replace

from cephfit.configuration import Configuration
from cephfit.protocols import JudgesConfigurations, Target
from cephfit.sweep.model import Sweep


def without_gone(target: Target, sweep: Sweep) -> tuple[Sweep, Mapping[str, tuple[str, ...]]]:
    """The sweep as it can be on this target, where its file says ``gone_options: leave-out``.

    A configuration of which something is left is measured without the settings that the target cannot take; one of
    which nothing is left stays as it is, and so will be skipped.

    Returns:
        The sweep, and for each configuration that is not as its file says, one reason per setting left out.

    Raises:
        InputError: as ``JudgesConfigurations.unsupported``.
    """
    if not sweep.leaves_out_gone or not isinstance(target, JudgesConfigurations):
        return sweep, {}
    left_out: dict[str, tuple[str, ...]] = {}
    configurations = list(sweep.configurations)
    found = target.unsupported(sweep.configurations)
    for i, configuration in enumerate(configurations):
        if configuration.name not in found:
            continue
        kept = tuple(
            setting
            for setting in configuration.settings
            if not target.unsupported([Configuration(configuration.name, (setting,))])
        )
        if kept:
            configurations[i] = replace(configuration, settings=kept)
            left_out[configuration.name] = tuple(found[configuration.name])
    return replace(sweep, configurations=tuple(configurations)), left_out
