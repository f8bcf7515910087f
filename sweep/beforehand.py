"""What a target says of a sweep before anything is changed."""

import re
from collections.abc import Mapping

from cephfit.configuration import Partition
from cephfit.errors import InputError
from cephfit.protocols import JudgesConfigurations, Target, WarnsOfSettings
from cephfit.sweep.catalogue import WrongValueError, unknown_option
from cephfit.sweep.model import Sweep
from cephfit.sweep.option_history import history_of


def unsupported_by(target: Target, sweep: Sweep) -> Mapping[str, tuple[str, ...]]:
    """Configurations that the target cannot be brought into, each with its reasons: they will be skipped.

    Raises:
        InputError: an option that no Ceph is known to have had. It is a typing error: a sweep that skipped it
            would run for hours and answer another question than the one asked. So is a value that an option does
            not take.
    """
    if not isinstance(target, JudgesConfigurations):
        return {}
    try:
        found = target.unsupported(sweep.configurations)
    except WrongValueError as error:
        where = f"sweep {sweep.name}, line {_line_of(error.key, sweep.text)}"
        raise WrongValueError(error.key, error.what, f"{where}, {error.where}") from None
    for name, reasons in found.items():
        for setting in sweep.configuration(name).within(Partition.CEPH):
            key = setting.key
            if history_of(key) is not None:
                continue
            for reason in reasons:
                if reason.startswith(unknown_option(key)):
                    what, _, hint = reason.partition("; ")
                    raise InputError(
                        what,
                        where=f"sweep {sweep.name}, line {_line_of(key, sweep.text)}, configuration {name}",
                        remedy=hint or "see `ceph config ls` for the options there are",
                    )
    return found


def without_effect_by(target: Target, sweep: Sweep) -> Mapping[str, tuple[str, ...]]:
    """Configurations with settings that the target takes but never reads, such as FileStore's on BlueStore."""
    return target.without_effect(sweep.configurations) if isinstance(target, WarnsOfSettings) else {}


def _line_of(key: str, text: str) -> int:
    """Line on which an option stands, in any of the spellings that Ceph takes for it."""
    word = re.compile(r"\b" + re.sub("_", "[ _-]", re.escape(key)) + r"\b")
    return next((n for n, line in enumerate(text.splitlines(), start=1) if word.search(line)), 1)
