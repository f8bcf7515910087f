"""What a sweep means on a release of Ceph: settings that the release does not have, and defaults that it changes.

It needs no cluster: the options of the releases come with cephfit.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cephfit.ceph.environment.scopes import OSD_STORE, base_scope, wants_filestore, why_no_filestore
from cephfit.ceph.options.option import Option, fault_of
from cephfit.ceph.options.option_archive import (
    ActsOn,
    DifferingDefault,
    KnownOptions,
    differing_defaults,
    known,
    known_versions,
)
from cephfit.ceph.options.option_catalogue import nearest_option, unknown_option
from cephfit.ceph.options.option_history import FILESTORE_PREFIXES, history_of, logging_levels
from cephfit.ceph.pools.pool_keys import release_note, why_no_key
from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.core.values.configuration import Partition, Setting
from cephfit.sweep.execution.preflight import line_of
from cephfit.sweep.sweep_plan import Sweep


@dataclass(frozen=True, slots=True)
class LackingSetting:
    """A setting of a sweep that some releases do not have.

    Attributes:
        configuration: with the setting.
        key: of the setting.
        versions: of these releases, oldest first.
        why: sentence on the newest of them, with the reason and, if there is one, the new name.
    """

    configuration: str
    key: str
    versions: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class UnsetDefault:
    """A differing default of an option that at least one configuration of a sweep leaves unset.

    Attributes:
        default: the option and its value in each release.
        set_by: configurations that set the option; for these, the default does not matter.
    """

    default: DifferingDefault
    set_by: tuple[str, ...]


def releases_called(names: Sequence[str]) -> tuple[KnownOptions, ...]:
    """Return the options of releases, oldest first; all known ones if no name is given.

    Raises:
        InputError: the options of a release are unknown.
    """
    found = {one.version: one for one in map(known, names or _newest_of_each())}
    return tuple(found[version] for version in known_versions() if version in found)


def _newest_of_each() -> list[str]:
    """Return the newest known version of each release: this machine may keep several."""
    newest = {".".join(version.split(".")[:2]): version for version in known_versions()}
    return list(newest.values())


def lacking_settings(sweep: Sweep, releases: Sequence[KnownOptions]) -> tuple[LackingSetting, ...]:
    """Return the settings of a sweep that some of the releases do not have, in the order of the sweep.

    Raises:
        InputError: no known release has an option: a typing error.
    """
    options = {release.version: {option.name: option for option in release.options} for release in releases}
    found = []
    for configuration in sweep.configurations:
        for setting in configuration.settings:
            reasons = {version: _why_lacking(setting, version, known_) for version, known_ in options.items()}
            if versions := tuple(version for version, why in reasons.items() if why):
                if len(versions) == len(releases):
                    _refuse_typing_error(setting.key, sweep, configuration.name, options[versions[-1]])
                found.append(LackingSetting(configuration.name, setting.key, versions, reasons[versions[-1]]))
    return tuple(found)


def _why_lacking(setting: Setting, version: str, options: Mapping[str, Option]) -> str:
    if setting.partition is Partition.POOL:
        return why_no_key(setting.key, lambda: version) if setting.scope == "pool" else ""
    if setting.partition is Partition.GREATER:
        of_filestore = base_scope(setting.scope) == OSD_STORE and wants_filestore(setting.key, setting.value)
        return why_no_filestore(version) if of_filestore else ""
    if setting.key in options:
        gone = why_no_filestore(version) if setting.key.startswith(FILESTORE_PREFIXES) else ""
        fault = fault_of(setting.value, options[setting.key])
        wrong = f"on Ceph {version}, {setting.key} {fault}, not {setting.value}" if fault else ""
        return f"{gone}, so no OSD reads {setting.key}" if gone else wrong
    return "" if setting.key in logging_levels() else unknown_option(setting.key, version, options)


def _refuse_typing_error(key: str, sweep: Sweep, configuration: str, options: Collection[str]) -> None:
    """Refuse an option that no release has: the history of options has those of all examined releases.

    Raises:
        InputError: it is such an option.
    """
    is_option = any(
        s.key == key and s.partition is Partition.CEPH for s in sweep.configuration(configuration).settings
    )
    elsewhere = (option.name for version in known_versions() for option in known(version).options)
    if is_option and history_of(key) is None and key not in elsewhere:
        raise InputError(
            f"no known release of Ceph has an option {key}",
            where=f"sweep {sweep.name}, line {line_of(key, sweep.text)}, configuration {configuration}",
            remedy=nearest_option(key, options) or "`cephfit params tree --release reef` lists the options",
        )


def require_settings(sweep: Sweep, releases: Sequence[KnownOptions]) -> None:
    """Refuse a sweep with settings that one of these releases does not have.

    Raises:
        InputError: names the release, the configuration and, if there is one, the new name of the option.
    """
    lacking = lacking_settings(sweep, releases)
    if not lacking or sweep.omits_gone_options:
        return
    first, *others = lacking
    more = f" ({len(others)} more: `cephfit sweep plan` without --release lists all)" if others else ""
    raise InputError(
        f"{first.why}{more}",
        where=f"sweep {sweep.name}, line {line_of(first.key, sweep.text)}, configuration {first.configuration}",
        remedy="change the setting or omit it for this release; `gone_options: leave-out` in the sweep file omits "
        "such options by itself",
    )


def release_notes(sweep: Sweep, version: str) -> tuple[str, ...]:
    """Return notes on settings that a version of Ceph, such as ``18.2.7``, still has but deprecates."""
    has_tier = any(setting.key.startswith("cache.") for setting in _of_pools(sweep))
    return tuple(filter(None, [release_note(version)])) if has_tier else ()


def unset_defaults(sweep: Sweep, releases: Sequence[KnownOptions]) -> tuple[UnsetDefault, ...]:
    """Return the differing defaults that act on what a sweep measures, of options that it does not always set.

    Scrubbing and recovery do not count: samples taken during them are invalid.

    Args:
        sweep: to measure.
        releases: oldest first; fewer than two have no differences.
    """
    if len(releases) < 2:
        return ()
    measured = set(_measured(sweep))
    users: dict[str, list[str]] = {}
    for configuration in sweep.configurations:
        for setting in configuration.within(Partition.CEPH):
            users.setdefault(setting.key, []).append(configuration.name)
    return tuple(
        UnsetDefault(default, tuple(users.get(default.name, ())))
        for default in differing_defaults(releases)
        if default.acts_on in measured and len(users.get(default.name, ())) < len(sweep.configurations)
    )


def _measured(sweep: Sweep) -> Iterator[ActsOn]:
    """Yield what a sweep measures."""
    yield from (ActsOn.ALL, ActsOn.UNKNOWN)
    m = sweep.measurement
    if any(cell.pattern.op is Op.WRITE for load in m.load_names for cell in m.under(load).cells):
        yield ActsOn.WRITES
    keys = {setting.key for setting in _of_pools(sweep)}
    if any(key.startswith("erasure.") for key in keys):
        yield ActsOn.ERASURE
    settings = [s for c in sweep.configurations for s in c.within(Partition.CEPH)]
    if any("compression_mode" in key for key in keys) or any("compression_mode" in s.key for s in settings):
        yield ActsOn.COMPRESSION


def _of_pools(sweep: Sweep) -> list[Setting]:
    return [s for c in sweep.configurations for s in c.within(Partition.POOL) if s.scope == "pool"]
