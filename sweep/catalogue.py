"""Which options the running cluster has, and what each needs in order to take effect."""

import difflib
import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cephfit.configuration import Configuration, Partition, Setting
from cephfit.errors import InputError
from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.answers import RefusedError
from cephfit.sweep.removed_options import FILESTORE_PREFIXES, REMOVED_OPTIONS

DAEMON_SECTIONS = ("global", "mon", "mgr", "osd", "client")
POOL_KEYS = (
    "size", "min_size", "pg_num", "pgp_num", "crush_rule", "compression_mode", "compression_algorithm",
    "compression_required_ratio", "compression_max_blob_size", "compression_min_blob_size", "csum_type",
    "csum_min_block", "csum_max_block", "write_fadvise_dontneed", "fast_read", "recovery_priority", "read_ratio",
)  # fmt: skip
"""What ``osd pool set`` knows and a sweep may vary on a pool of its own."""
IMAGE_KEYS = ("object_size", "stripe_unit", "stripe_count", "features")
_POOL_SCOPES = {"pool": POOL_KEYS, "image": IMAGE_KEYS}
GREATER_SCOPES = ("osd_disk", "client_disk")


@dataclass(frozen=True, slots=True)
class Option:
    """One option as ``config help`` describes it.

    Attributes:
        name: Ceph's spelling.
        type: ``int``, ``uint``, ``size``, ``float``, ``bool``, ``str``, ``secs`` ...
        default: as Ceph gives it.
        flags: ``runtime``, ``startup``, ``create`` ...
        services: who reads it, as far as Ceph says.
        can_update_at_runtime: whether the value of a running daemon changes at all.
    """

    name: str
    type: str
    default: Any
    flags: tuple[str, ...]
    services: tuple[str, ...]
    can_update_at_runtime: bool

    @property
    def acts_at_runtime(self) -> bool:
        """Whether a running daemon acts on a change.

        ``can_update_at_runtime`` is true of every number and every bool: the value changes, but code that read
        it once at its start (``bluestore_cache_size``) goes on as before. Only options flagged ``runtime`` are
        watched or read anew; the others need a restart, though a read-back would look right without one.
        """
        return "runtime" in self.flags

    @property
    def acts_at_creation_only(self) -> bool:
        """Whether only a newly made OSD or cluster reads it (``bluestore_min_alloc_size``)."""
        return "create" in self.flags or "cluster_create" in self.flags


class Catalogue:
    """The options of one running cluster; each is asked for once."""

    def __init__(self, admin: CephAdmin) -> None:
        self._admin = admin
        self._known: dict[str, Option | None] = {}
        self._names: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """All option names of the running release."""
        if not self._names:
            self._names = tuple(self._admin.command("config ls"))
        return self._names

    def find(self, key: str) -> Option | None:
        """The option, or None where this release has no such one."""
        if key not in self._known:
            self._known[key] = self._ask(key)
        return self._known[key]

    def option(self, key: str, *, where: str = "") -> Option:
        """Raises:
        InputError: the release has no such option; says the nearest right word, or what replaced it.
        """
        found = self.find(key)
        if found is not None:
            return found
        raise InputError(unknown_option(key, self.names()), where=where, remedy=_nearest(key, self.names()))

    def _ask(self, key: str) -> Option | None:
        if key not in self.names():
            return None
        try:
            said = self._admin.command("config help", key=key)
        except RefusedError as error:
            if error.code == errno.ENOENT:
                return None
            raise
        return Option(
            name=said["name"],
            type=said["type"],
            default=said["daemon_default"] if said.get("daemon_default") not in (None, "") else said["default"],
            flags=tuple(said["flags"]),
            services=tuple(said["services"]),
            can_update_at_runtime=bool(said["can_update_at_runtime"]),
        )


def unknown_option(key: str, names: Iterable[str] = ()) -> str:
    """The sentence that says an option does not exist, with its history where it has one."""
    removed = REMOVED_OPTIONS.get(key)
    if removed is not None:
        return f"this Ceph has no option {key}: it {removed.gone}; {removed.instead}"
    if key.startswith(FILESTORE_PREFIXES) and not any(n.startswith("filestore_") for n in names):
        return f"this Ceph has no option {key}: FileStore was removed in Reef (18.2)"
    return f"this Ceph has no option {key}"


def _nearest(key: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, list(names), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close and key not in REMOVED_OPTIONS else ""


def reason_against(setting: Setting, catalogue: Catalogue | None, *, where: str = "") -> str:
    """Why a setting cannot take effect on this cluster; empty if nothing speaks against it.

    Args:
        setting: of any partition.
        catalogue: of the running cluster; None to judge by what is known of Ceph since Luminous.
        where: the setting's place, for errors.

    Raises:
        InputError: no such scope, section, pool or image setting: a typing error whatever the release.
    """
    if setting.partition is Partition.CEPH:
        return _reason_against_option(setting, catalogue, where)
    if setting.partition is Partition.GREATER:
        _require(setting.scope, GREATER_SCOPES, "scope of settings around Ceph", where)
        return ""
    _require(setting.scope, _POOL_SCOPES, "scope of pool settings", where)
    _require(setting.key, _POOL_SCOPES[setting.scope], f"{setting.scope} setting", where)
    return ""


def unsupported(
    configurations: Iterable[Configuration], catalogue: Catalogue | None
) -> dict[str, tuple[str, ...]]:
    """Configurations that this cluster cannot be brought into, with one reason per setting.

    Their samples are ``skipped`` with these reasons, never dropped in silence. Configurations that can be
    applied do not appear.

    Raises:
        InputError: a scope, section, pool or image setting that no release ever had.
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
        return unknown_option(setting.key) if setting.key in REMOVED_OPTIONS else ""
    option = catalogue.find(setting.key)
    if option is None:
        hint = _nearest(setting.key, catalogue.names())
        return unknown_option(setting.key, catalogue.names()) + (f"; {hint}" if hint else "")
    if option.acts_at_creation_only:
        return f"{setting.key} acts only when an OSD is created; a sweep does not make OSDs anew"
    if kind in ("mon", "mgr") and not option.acts_at_runtime:
        return f"{setting.key} acts only when a {kind} starts; a sweep does not restart monitors and managers"
    return ""


def _require(word: str, known: Iterable[str], what: str, where: str) -> None:
    known = tuple(known)
    if word not in known:
        remedy = _nearest(word, known) or f"there are {', '.join(known)}"
        raise InputError(f"there is no {what} {word!r}", where=where, remedy=remedy)


def without_effect(
    configurations: Iterable[Configuration], objectstores: Iterable[str]
) -> Mapping[str, tuple[str, ...]]:
    """Warnings: settings that this release has but these OSDs never read (FileStore's options on BlueStore).

    Args:
        configurations: of a sweep.
        objectstores: ``osd_objectstore`` of every OSD, as ``osd metadata`` tells.
    """
    if "filestore" in (stores := set(objectstores)):
        return {}
    running = ", ".join(sorted(stores)) or "unknown"
    warnings = {
        c.name: tuple(
            f"{s.key} is FileStore's; these OSDs are {running}, so it has no effect"
            for s in c.within(Partition.CEPH)
            if s.key.startswith(FILESTORE_PREFIXES)
        )
        for c in configurations
    }
    return {name: why for name, why in warnings.items() if why}
