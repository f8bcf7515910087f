"""Combine configurations, and write small sweep files that measure chosen configurations. Pure.

Two configurations can be combined if their settings do not conflict: the same setting with different values, the
same option in two sections that apply to the same daemons, or two placements of the data. Configurations that
share a setting are not combined either: the effect of that setting would count twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import yaml

from cephfit.core.errors import InputError
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, QOS, TYPE, Configuration, Partition, Setting
from cephfit.core.values.measurement import Measurement
from cephfit.sweep.declaration.file_settings import fault_of_configuration
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.factorial_design import shortened
from cephfit.sweep.proposal import as_yaml
from cephfit.sweep.sweep_plan import Sweep

_PLACEMENT = ("crush_rule", "devices", "primary", "erasure", "metadata", "cache", "classes", "failure_domain")
"""First parts of the keys of a pool that determine where, and on which pools, its data is stored."""
_COPIES = ("size", "min_size")
"""Keys of replicated pools, which erasure coding replaces."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two configurations that cannot be combined.

    Attributes:
        names: of both.
        reason: why, as text.
    """

    names: tuple[str, str]
    reason: str


@dataclass(frozen=True, slots=True)
class Combinations:
    """What can be combined.

    Attributes:
        sets: the configurations of each combination, the pairs first.
        conflicts: pairs that cannot be combined.
    """

    sets: tuple[tuple[Configuration, ...], ...]
    conflicts: tuple[Conflict, ...]


def possible_combinations(singles: Sequence[Configuration]) -> Combinations:
    """Return all pairs without a conflict, and the set to which each is added that conflicts with none in it.

    Args:
        singles: to be combined, the best first.
    """
    conflicts: list[Conflict] = []
    pairs: list[tuple[Configuration, ...]] = []
    for one, other in combinations(singles, 2):
        if reason := conflict_of(one, other):
            conflicts.append(Conflict((one.name, other.name), reason))
        else:
            pairs.append((one, other))
    together: list[Configuration] = []
    for single in singles:
        if all((one, single) in pairs for one in together):
            together.append(single)
    largest = [tuple(together)] if len(together) > 2 else []
    return Combinations((*pairs, *largest), tuple(conflicts))


def conflict_of(one: Configuration, other: Configuration) -> str:
    """Return why two configurations cannot be combined, or the effect cannot be expected; empty if they can."""
    for mine in one.settings:
        for theirs in other.settings:
            if reason := _conflict(mine, theirs):
                return reason
    if shared := [s for s in one.settings if s in other.settings]:
        return f"both have {_listed(shared)}: how much of each effect is due to it is not known"
    placed = [[s for s in c.settings if _places(s)] for c in (one, other)]
    if all(placed) and {str(s) for s in placed[0]} != {str(s) for s in placed[1]}:
        return f"two pools: {_listed(placed[0])} and {_listed(placed[1])} both determine where the data is stored"
    for coded, copied in ((one, other), (other, one)):
        if any(s.key.startswith("erasure.") for s in coded.settings):
            copies = [s for s in copied.settings if s.scope == "pool" and s.key in _COPIES]
            if copies:
                return f"two pools: {coded.name} is erasure coded, and {_listed(copies)} is of replicated pools"
    for typed, pooled in ((one, other), (other, one)):
        if any((s.scope, s.key) == ("volume", TYPE) for s in typed.settings):
            own = [s for s in pooled.settings if s.partition is Partition.POOL and s.scope == "pool"]
            if own:
                return (
                    f"two pools: the volume type of {typed.name} selects an existing pool, without {_listed(own)}"
                )
    for placed_one, tuned in ((one, other), (other, one)):
        device_class = _device_class(placed_one)
        if device_class and tuned.settings and all(_of_another_class(s, device_class) for s in tuned.settings):
            return f"{placed_one.name} stores on {device_class}, where {_listed(tuned.settings)} has no effect"
    return fault_of_configuration(merged([one, other]))


def merged(configurations: Sequence[Configuration], why: str = "") -> Configuration:
    """Return the configuration with the settings of all, named after them.

    Args:
        configurations: without conflicts.
        why: a sentence for readers of the report.
    """
    settings = dict.fromkeys(setting for c in configurations for setting in c.settings)
    ordered = sorted(settings, key=lambda s: (s.partition, s.scope, s.key))
    return Configuration(shortened(".".join(c.name for c in configurations)), tuple(ordered), why)


def _conflict(mine: Setting, theirs: Setting) -> str:
    """Return why two settings cannot both be in effect; empty if they can."""
    if mine.key != theirs.key or mine.partition is not theirs.partition or mine.value == theirs.value:
        return ""
    if mine.scope == theirs.scope:
        return f"{mine} and {theirs.value}"
    if mine.partition is Partition.CEPH and _sections_meet(mine.scope, theirs.scope):
        return f"{mine} and {theirs}: both sections apply to the same daemons"
    return ""


def _sections_meet(one: str, other: str) -> bool:
    """Return whether two sections of Ceph's configuration may apply to the same daemon or client."""
    names = [section.partition("/")[0] for section in (one, other)]
    kinds = [name.partition(".")[0] for name in names]
    if "global" in kinds or kinds[0] != kinds[1]:
        return "global" in kinds
    if names[0] != names[1] and all("." in name for name in names):  # osd.1 and osd.2
        return False
    # Sections of two classes or hosts, such as osd/class:hdd and osd/class:ssd, share no daemon.
    masks = [section.partition("/")[2].partition(":") for section in (one, other)]
    return not (masks[0][0] and masks[0][0] == masks[1][0] and masks[0][2] != masks[1][2])


def _places(setting: Setting) -> bool:
    return (
        setting.partition is Partition.POOL
        and setting.scope == "pool"
        and setting.key.partition(".")[0] in _PLACEMENT
    )


_CLASSES = ("hdd", "ssd")
"""Device classes with options of their own, such as ``bluestore_max_blob_size_hdd``."""


def _device_class(configuration: Configuration) -> str:
    """Return the class of the disks that hold all data; empty if that is not known.

    A CRUSH rule counts as one of a class if it has the name of the class, as those of the lab have.
    """
    keys = ("crush_rule", "devices.class")
    found = {s.value for s in configuration.settings if s.scope == "pool" and s.key in keys}
    is_mixed = any(s.key.startswith("primary.") for s in configuration.settings)
    return next((name for name in _CLASSES if found == {name} and not is_mixed), "")


def _of_another_class(setting: Setting, device_class: str) -> bool:
    ending = setting.key.rpartition("_")[2]
    return setting.partition is Partition.CEPH and ending in _CLASSES and ending != device_class


def _listed(settings: Iterable[Setting]) -> str:
    return ", ".join(f"{s.key} = {s.value}" for s in settings)


def sweep_of(
    base: Sweep,
    configurations: Sequence[Configuration],
    measurement: Measurement,
    *,
    name: str,
    description: str,
) -> Sweep:
    """Return a sweep of chosen configurations; its ``text`` is the sweep file.

    Args:
        base: gives accepted risks and how options that a cluster lacks are treated.
        configurations: to measure; the default is added.
        measurement: without a mix and rates under further loads.
        name: of the sweep; cut if it is too long.
        description: for people.

    Raises:
        InputError: the file would not be valid.
    """
    chosen = {c.name: c for c in configurations if c.name != DEFAULT_CONFIGURATION}
    default = next((c for c in base.configurations if c.name == DEFAULT_CONFIGURATION), None)
    bodies = {DEFAULT_CONFIGURATION: {"why": (default.why if default else "") or "the default"}}
    bodies |= {c.name: _body(c) for c in chosen.values()}
    head: dict[str, Any] = {"schema_version": 1, "name": shortened(name), "description": description}
    if base.accept_risk:
        head["accept_risk"] = list(base.accept_risk)
    if base.omits_gone_options:
        head["gone_options"] = "leave-out"
    text = _dumped(head) + _dumped({"configurations": bodies}) + as_yaml(measurement)
    found = parse_sweep(text, file=name)
    wanted = {c.name: set(c.settings) for c in chosen.values()}
    read = {c.name: set(c.settings) for c in found.configurations if c.name != DEFAULT_CONFIGURATION}
    if wanted != read:  # a value that YAML and Ceph's sizes write differently
        names = ", ".join(n for n in wanted if wanted[n] != read.get(n))
        raise InputError(f"the settings of {names} cannot be written to a sweep file", where=name)
    return found


def _dumped(document: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=110))


def _body(configuration: Configuration) -> dict[str, Any]:
    """Return a configuration as in a sweep file."""
    body: dict[str, Any] = {"why": configuration.why} if configuration.why else {}
    for setting in configuration.settings:
        inside = _part(body, setting)
        if setting.scope == "volume" and setting.key.startswith(f"{QOS}."):
            inside.setdefault(QOS, {})[setting.key.removeprefix(f"{QOS}.")] = setting.value
        else:
            inside[setting.key] = setting.value
    return body


def _part(body: dict[str, Any], setting: Setting) -> dict[str, Any]:
    """Return the mapping of a configuration's body that a setting belongs in."""
    if setting.partition is Partition.POOL:
        found: dict[str, Any] = body.setdefault(setting.scope, {})
    else:
        found = body.setdefault(setting.partition.value, {}).setdefault(setting.scope, {})
    return found
