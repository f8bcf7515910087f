"""The options of the running cluster: what each needs in order to take effect, and all of them as a tree.

Ceph's names form the tree: the first word is the component, the second the part of it, the category (Meyer 2017,
section 2.4.1). Options that are alone in their category are collected under ``general``.
"""

import difflib
import errno
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.delivery.option_delivery import has_store
from cephfit.ceph.environment.scopes import GREATER_SCOPES, base_scope
from cephfit.ceph.options.option import RISKS, Option, Risk, fault_of, same_value
from cephfit.ceph.options.option_history import (
    FILESTORE_PREFIXES,
    REPLACED,
    described,
    history_of,
    is_gone,
    logging_levels,
    names_of,
)
from cephfit.ceph.pools.pool_keys import IMAGE_KEYS, POOL_KEYS, is_pool_key, why_no_key
from cephfit.core.errors import InputError
from cephfit.core.protocols import CephAdmin
from cephfit.core.values.configuration import VOLUME_KEYS, Configuration, Partition, Setting

DAEMON_SECTIONS = ("global", "mon", "mgr", "osd", "client")
_POOL_SCOPES = {"pool": POOL_KEYS, "image": IMAGE_KEYS}


class WrongValueError(InputError):
    """A value that an option does not accept: an error of the sweep file in every release.

    Attributes:
        key: the option.
    """

    def __init__(self, key: str, what: str, where: str) -> None:
        super().__init__(what, where=where, remedy=f"`cephfit params show {key}` lists what it accepts")
        self.key = key


class Catalogue:
    """The options of one running cluster; each is requested once."""

    def __init__(self, admin: CephAdmin) -> None:
        self._admin = admin
        self._known: dict[str, Option | None] = {}
        self._names: tuple[str, ...] = ()
        self._version = ""

    def names(self) -> tuple[str, ...]:
        """Return all option names of the running release, and the log levels (``debug_osd``) of every release.

        Ceph's list does not contain the log levels.
        """
        if not self._names:
            self._names = tuple(sorted({*self._list(), *logging_levels()}))
        return self._names

    def find(self, key: str) -> Option | None:
        """Return the option, or None if this release does not have it."""
        if key not in self._known:
            self._known[key] = self._ask(key)
        return self._known[key]

    def option(self, key: str, *, where: str = "") -> Option:
        """Return the option.

        Raises:
            InputError: the release does not have it; suggests the nearest name, or the replacement.
        """
        found = self.find(key)
        if found is not None:
            return found
        raise InputError(
            unknown_option(key, names=self.names()), where=where, remedy=nearest_option(key, self.names())
        )

    def acts_at_runtime(self, key: str) -> bool:
        """Return whether running daemons act on an option; True for one that an upgrade removed: none reads it."""
        found = self.find(key)
        return found is None or found.acts_at_runtime

    def same(self, key: str, one: str | None, other: str | None) -> bool:
        """Return whether two spellings are one value of an option, which an upgrade may have removed.

        None stands for no value.
        """
        if one is None or other is None:
            return one is other
        found = self.find(key)
        return same_value("" if found is None else found.type, one, other)

    def all(self) -> tuple[Option, ...]:
        """Return every option, sorted by name: about 2,000 commands, one second in total over librados."""
        return tuple(option for key in self.names() if (option := self.find(key)) is not None)

    def version(self) -> str:
        """Return the version of the monitors, which describe the options: ``16.2.15``."""
        if not self._version:
            words = str(self._admin.command("version")["version"]).split()
            self._version = words[2] if len(words) > 2 else words[-1]
        return self._version

    def _ask(self, key: str) -> Option | None:
        try:
            return Option.from_help(self._admin.command("config help", key=key))
        except RefusedError as error:
            if error.code == errno.ENOENT:
                return None
            if error.code == errno.EINVAL and not has_store(self.version()):
                return described(key, self.version())
            raise

    def _list(self) -> Iterable[str]:
        try:
            return map(str, self._admin.command("config ls"))
        except RefusedError as error:
            if error.code == errno.EINVAL and not has_store(self.version()):
                return names_of(self.version())
            raise


def unknown_option(key: str, version: str = "", names: Collection[str] = ()) -> str:
    """Return the message that an option does not exist, with its history and its replacement if there is one.

    Args:
        key: the option.
        version: of the release without it; empty: the running cluster's.
        names: options of that release, of which a replacement must be one; empty: any replacement is named.
    """
    history = history_of(key)
    known = f": it {history.sentence}" if history is not None else ""
    instead = [name for name in REPLACED.get(key, ()) if not names or name in names]
    use = f"; instead it has {' and '.join(instead)}, whose values may have another unit" if instead else ""
    return f"{f'Ceph {version}' if version else 'this Ceph'} has no option {key}{known}{use}"


def nearest_option(key: str, names: Iterable[str]) -> str:
    """Return a suggestion of a similar name; empty if there is none, or an older release has the option."""
    close = difflib.get_close_matches(key, list(names), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close and history_of(key) is None else ""


def reason_against(setting: Setting, catalogue: Catalogue | None, *, where: str = "") -> str:
    """Return why a setting cannot take effect on this cluster; empty if it can.

    Args:
        setting: of any partition.
        catalogue: of the running cluster; None for a check against Ceph since Luminous.
        where: the setting's place, for errors.

    Raises:
        InputError: no such scope, section, pool or image setting, or a value that the option does not accept: an
            error in every release.
    """
    if setting.partition is Partition.CEPH:
        return _reason_against_option(setting, catalogue, where)
    if setting.partition is Partition.GREATER:
        _require(base_scope(setting.scope), GREATER_SCOPES, "scope of settings around Ceph", where)
        return ""
    if setting.scope == "volume" and setting.key in VOLUME_KEYS:
        return f"{setting} is a setting of OpenStack volumes, and this Ceph cluster has no OpenStack"
    _require(setting.scope, _POOL_SCOPES, "scope of pool settings", where)
    if setting.scope != "pool" or not is_pool_key(setting.key):
        _require(setting.key, _POOL_SCOPES[setting.scope], f"{setting.scope} setting", where)
    return why_no_key(setting.key, catalogue.version) if catalogue is not None else ""


def unsupported(
    configurations: Iterable[Configuration], catalogue: Catalogue | None
) -> dict[str, tuple[str, ...]]:
    """Return the configurations that this cluster does not support, with one reason per setting.

    Their samples are ``skipped`` with these reasons. Configurations that can be applied do not appear.

    Raises:
        InputError: a scope, section, pool or image setting that no release has, or a value that an option does
            not accept.
    """
    reasons: dict[str, tuple[str, ...]] = {}
    for configuration in configurations:
        where = f"configuration {configuration.name}"
        why = tuple(r for s in configuration.settings if (r := reason_against(s, catalogue, where=where)))
        if why:
            reasons[configuration.name] = why
    return reasons


def _reason_against_option(setting: Setting, catalogue: Catalogue | None, where: str) -> str:
    kind = setting.scope.partition("/")[0].partition(".")[0]
    _require(kind, DAEMON_SECTIONS, "section", where)
    if catalogue is None:
        return unknown_option(setting.key) if is_gone(setting.key) else ""
    option = catalogue.find(setting.key)
    if option is None:
        hint = nearest_option(setting.key, catalogue.names())
        return unknown_option(setting.key, names=catalogue.names()) + (f"; {hint}" if hint else "")
    if fault := fault_of(setting.value, option):
        raise WrongValueError(setting.key, f"{setting.key} {fault}, not {setting.value}", where)
    if option.acts_at_creation_only:
        return f"{setting.key} takes effect only when an OSD is created; a sweep does not recreate OSDs"
    if kind in ("mon", "mgr") and not option.acts_at_runtime:
        return f"{setting.key} acts only when a {kind} starts; a sweep does not restart monitors and managers"
    return ""


def _require(word: str, known: Iterable[str], what: str, where: str) -> None:
    known = tuple(known)
    if word not in known:
        remedy = nearest_option(word, known) or f"there are {', '.join(known)}"
        raise InputError(f"there is no {what} {word!r}", where=where, remedy=remedy)


def without_effect(
    configurations: Iterable[Configuration], objectstores: Iterable[str]
) -> Mapping[str, tuple[str, ...]]:
    """Warn of settings that exist but that these OSDs never read (FileStore's options on BlueStore).

    Args:
        configurations: of a sweep.
        objectstores: ``osd_objectstore`` of every OSD, from ``osd metadata``.
    """
    if "filestore" in (stores := set(objectstores)):
        return {}
    running = ", ".join(sorted(stores)) or "unknown"
    warnings = {
        c.name: tuple(
            f"{s.key} is an option of FileStore; these OSDs are {running}, so it has no effect"
            for s in c.within(Partition.CEPH)
            if s.key.startswith(FILESTORE_PREFIXES)
        )
        for c in configurations
    }
    return {name: why for name, why in warnings.items() if why}


GENERAL = "general"
OTHER = "common"

_COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "osd": ("osd", "heartbeat", "memory"),
    "bluestore": ("bluestore", "bluefs", "bdev", "rocksdb"),
    "filestore": ("filestore", "journal", "journaler"),
    "other object stores": ("memstore", "kstore", "leveldb", "keyvaluestore", "seastore"),
    "monitor": ("mon", "paxos", "clog"),
    "manager": ("mgr",),
    "metadata server": ("mds", "mdsc"),
    "rados gateway": ("rgw",),
    "rbd client": ("rbd", "rwl", "immutable"),
    "rados client": ("objecter", "rados", "librados"),
    "cephfs client": ("client", "fuse", "cephfs", "filer"),
    "messenger": ("ms", "public", "cluster"),
    "authentication": ("auth", "cephx", "keyring", "key", "keyfile", "rotating", "gss"),
    "logging": ("log", "debug", "err", "lockdep"),
}
_COMPONENT_OF = {word: component for component, words in _COMPONENTS.items() for word in words}
COMPONENTS = (*_COMPONENTS, OTHER)
"""In the order in which the tree is shown."""

_READERS = {
    "osd": "osd", "bluestore": "osd", "filestore": "osd", "other object stores": "osd", "monitor": "mon",
    "manager": "mgr", "metadata server": "mds", "rados gateway": "rgw", "rbd client": "client",
    "rados client": "client", "cephfs client": "client",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parameter:
    """An option with its position in the tree.

    Attributes:
        option: as the cluster describes it.
        component: one of ``COMPONENTS``.
        category: within the component.
        risks: known risks to data, for some value or for all.
    """

    option: Option
    component: str
    category: str
    risks: tuple[Risk, ...]

    @property
    def readers(self) -> tuple[str, ...]:
        """The readers: Ceph's list, else derived from the component; empty for all daemons and clients."""
        by_component = _READERS.get(self.component)
        return self.option.services or ((by_component,) if by_component else ())

    @property
    def tags(self) -> tuple[str, ...]:
        """Warnings before a change: ``restart``, ``creation``, ``risk``, ``recovery``."""
        when = self.option.takes_effect
        return (
            *((when,) if when != "at once" else ()),
            *(("risk",) if self.risks else ()),
            *(("recovery",) if self.option.affects_recovery else ()),
        )


def tree_of(options: Iterable[Option]) -> tuple[Parameter, ...]:
    """Return all options with their positions, sorted by component, category and name."""
    options = sorted(options, key=lambda option: option.name)
    sizes = Counter(_place(option.name) for option in options)
    parameters = []
    for option in options:
        component, category = _place(option.name)
        if sizes[component, category] == 1:
            category = GENERAL
        parameters.append(Parameter(option, component, category, risks_of(option.name)))
    return tuple(sorted(parameters, key=lambda p: (COMPONENTS.index(p.component), p.category, p.option.name)))


def risks_of(name: str) -> tuple[Risk, ...]:
    """Return the declared risks of an option, for any value."""
    return tuple(risk for risk in RISKS if risk.concerns(Partition.CEPH, name))


def found_by(parameters: Iterable[Parameter], words: Iterable[str]) -> tuple[Parameter, ...]:
    """Return the parameters with all of these words in name or description; matches of the name come first."""
    required = [word.lower().replace("-", "_") for word in words]
    by_name, by_text = [], []
    for parameter in parameters:
        option = parameter.option
        text = f"{option.name} {option.description} {option.more} {parameter.component}".lower()
        if all(word in option.name for word in required):
            by_name.append(parameter)
        elif all(word in text for word in required):
            by_text.append(parameter)
    return (*by_name, *by_text)


def _place(name: str) -> tuple[str, str]:
    if name.startswith("mgr/"):
        return "manager", f"module {name.split('/')[1]}"
    words = name.split("_")
    component = _COMPONENT_OF.get(words[0], OTHER)
    if component == OTHER:
        return OTHER, words[0]
    main = _COMPONENTS[component][0]
    return component, words[0] if words[0] != main else (words[1] if len(words) > 1 else GENERAL)
