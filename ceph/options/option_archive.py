"""The options of Ceph releases, their changes, and defaults that act on speed, for planning without a cluster.

There are two sources: the archive on this machine, with earlier answers of clusters, and the files that come with
cephfit (``releases/``). ``cephfit params export`` wrote these from a monitor and a manager of Debian's packages.
The archive takes precedence: it has the builds in actual use. Both have the same format.
"""

import gzip
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path

from platformdirs import user_data_path

from cephfit.ceph.options.option import Option, as_ceph_writes, same_value
from cephfit.ceph.options.option_history import RELEASES, REPLACED
from cephfit.core.errors import InputError

_SCHEMA_VERSION = 1
_PLAIN, _COMPRESSED = ".json", ".json.gz"
SHIPPED = "comes with cephfit"
KEPT = "kept on this machine"


@dataclass(frozen=True, slots=True)
class KnownOptions:
    """The options of one release.

    Attributes:
        version: complete, such as ``16.2.15``.
        options: all of them, sorted by name.
        source: for messages.
    """

    version: str
    options: tuple[Option, ...]
    source: str

    def __str__(self) -> str:
        return f"{self.version} ({self.source})"


def archive_folder() -> Path:
    """``$XDG_DATA_HOME`` (else ``~/.local/share``) ``/cephfit/options``."""
    return user_data_path("cephfit") / "options"


def shipped_folder() -> Path:
    """Return the files that come with cephfit."""
    return Path(str(resources.files(__package__))) / "releases"


def keep(version: str, options: Iterable[Option], *, folder: Path | None = None) -> Path:
    """Keep the options of a release; an existing file of this version is replaced atomically.

    Args:
        version: such as ``16.2.15``.
        options: all of them.
        folder: of the archive; None takes ``archive_folder``.
    """
    folder = folder or archive_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{version}{_PLAIN}"
    with tempfile.NamedTemporaryFile("wb", dir=folder, suffix=".part", delete=False) as part:
        part.write(as_file(version, options, path))
    return Path(part.name).replace(path)


def as_file(version: str, options: Iterable[Option], path: Path) -> bytes:
    """Return the content of an options file; equal options give equal bytes.

    Args:
        version: such as ``16.2.15``.
        options: all of them.
        path: of the file; a name that ends with ``.gz`` makes it compressed.
    """
    document = {
        "schema_version": _SCHEMA_VERSION,
        "ceph_version": version,
        "options": [option.to_json() for option in options],
    }
    text = json.dumps(document, indent=1).encode()
    return gzip.compress(text, mtime=0) if path.suffix == ".gz" else text


def kept_versions(*, folder: Path | None = None) -> tuple[str, ...]:
    """Return the versions with options on this machine, in order."""
    return _versions(folder or archive_folder(), _PLAIN)


def shipped_versions() -> tuple[str, ...]:
    """Return the versions with options that come with cephfit, in order."""
    return _versions(shipped_folder(), _COMPRESSED)


def known_versions(*, folder: Path | None = None) -> dict[str, str]:
    """Return every version with known options and its source; the archive takes precedence.

    Args:
        folder: of the archive; None takes ``archive_folder``.
    """
    sources = dict.fromkeys(shipped_versions(), SHIPPED) | dict.fromkeys(kept_versions(folder=folder), KEPT)
    return {version: sources[version] for version in sorted(sources, key=_order)}


def known(version: str, *, folder: Path | None = None, where: str = "--release") -> KnownOptions:
    """Read the options of a release from the archive or, if it has no match, from cephfit's files.

    Args:
        version: complete (``16.2.15``), a unique prefix (``16``), or the name of the release (``pacific``).
        folder: of the archive; None takes ``archive_folder``.
        where: the place of ``version``, for the error.

    Raises:
        InputError: no version or several versions match, or the file is damaged.
    """
    folder = folder or archive_folder()
    required = RELEASES.get(version.lower(), version)
    for versions, source in ((kept_versions(folder=folder), KEPT), (shipped_versions(), SHIPPED)):
        fitting = [v for v in versions if v == required] or [v for v in versions if v.startswith(f"{required}.")]
        if len(fitting) > 1:
            raise InputError(
                f"more than one version {version} among the options {source}",
                where=str(folder if source == KEPT else shipped_folder()),
                remedy=f"choose one of {', '.join(fitting)}",
            )
        if fitting:
            if source == SHIPPED:
                return _shipped(fitting[0])
            return KnownOptions(fitting[0], _read(folder / f"{fitting[0]}{_PLAIN}"), source)
    raise InputError(
        f"the options of Ceph {version} are unknown here",
        where=where,
        remedy=f"known are {', '.join(known_versions(folder=folder))}; `cephfit params tree --target TARGET` asks "
        "a running cluster and keeps its options",
    )


@cache
def _shipped(version: str) -> KnownOptions:
    """Read a file that comes with cephfit once: several releases are compared option by option."""
    return KnownOptions(version, _read(shipped_folder() / f"{version}{_COMPRESSED}"), SHIPPED)


def _read(path: Path) -> tuple[Option, ...]:
    try:
        content = path.read_bytes()
        document = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
        if document["schema_version"] != _SCHEMA_VERSION:
            raise InputError(f"its schema_version is {document['schema_version']}", where=str(path))
        return tuple(Option.from_json(one) for one in document["options"])
    except (ValueError, KeyError, TypeError, EOFError, gzip.BadGzipFile) as error:
        raise InputError(
            f"this file of options is damaged ({error})",
            where=str(path),
            remedy="delete it; `cephfit params tree --target TARGET` writes it again",
        ) from None


def _versions(folder: Path, suffix: str) -> tuple[str, ...]:
    return tuple(sorted((path.name.removesuffix(suffix) for path in folder.glob(f"*{suffix}")), key=_order))


def _order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Sort 16.2.9 before 16.2.15; parts that are not numbers come last."""
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in version.split("."))


@dataclass(frozen=True, slots=True)
class Change:
    """One change of an option.

    Attributes:
        name: of the option.
        kind: ``removed``, ``replaced``, ``added`` or ``default``.
        before: default of the older release; None for an added option.
        after: default of the newer release; None for a removed one.
        instead: options that replace it; empty where none is known.
        description: Ceph's line on the option.
        level: ``basic``, ``advanced`` or ``dev``: the audience that Ceph's developers intended.
    """

    name: str
    kind: str
    before: object
    after: object
    instead: tuple[str, ...]
    description: str
    level: str


def releases_of(text: str) -> tuple[KnownOptions, KnownOptions]:
    """Read ``pacific..reef`` or ``16.2..20.2``.

    Raises:
        InputError: it has another form, a release is unknown, or the first one is the newer one.
    """
    older, dots, newer = text.partition("..")
    if not (older and dots and newer):
        raise InputError(f"{text!r} is not a pair of releases", remedy="write OLDER..NEWER, such as pacific..reef")
    before, after = known(older, where=text), known(newer, where=text)
    if _order(before.version) > _order(after.version):
        raise InputError(
            f"{older} ({before.version}) is newer than {newer} ({after.version})",
            where=text,
            remedy=f"write {newer}..{older}; what it calls added is then missing in the older release",
        )
    return before, after


def changes_between(older: KnownOptions, newer: KnownOptions) -> tuple[Change, ...]:
    """Return all changes, by kind and name. Equal values in other spellings (0, ``0``; 2M, 2097152) are none."""
    before = {option.name: option for option in older.options}
    after = {option.name: option for option in newer.options}
    removed = [_removed(before[name], after) for name in sorted(before.keys() - after.keys())]
    added = [
        _change(after[name], "added", None, after[name].default) for name in sorted(after.keys() - before.keys())
    ]
    defaults = [
        _change(after[name], "default", before[name].default, after[name].default)
        for name in sorted(before.keys() & after.keys())
        if not same_value(after[name].type, before[name].default, after[name].default)
    ]
    order = ("removed", "replaced", "added", "default")
    return tuple(sorted([*removed, *added, *defaults], key=lambda change: (order.index(change.kind), change.name)))


def _removed(option: Option, after: Mapping[str, Option]) -> Change:
    instead = tuple(name for name in REPLACED.get(option.name, ()) if name in after)
    return _change(option, "replaced" if instead else "removed", option.default, None, instead)


def _change(option: Option, kind: str, before: object, after: object, instead: tuple[str, ...] = ()) -> Change:
    return Change(option.name, kind, before, after, instead, option.description, option.level)


class ActsOn(StrEnum):
    """The work whose speed an option changes."""

    ALL = "all I/O"
    WRITES = "writes"
    ERASURE = "erasure codes"
    COMPRESSION = "compression"
    SCRUBBING = "scrubbing next to clients"
    RECOVERY = "recovery next to clients"
    UNKNOWN = "not examined"


_EXAMINED: Mapping[str, tuple[ActsOn, str]] = {
    "osd_op_queue": (ActsOn.ALL, "the OSD's scheduler of client I/O, recovery and scrubbing"),
    "osd_mclock_profile": (ActsOn.ALL, "how mClock divides a disk; no effect with wpq"),
    "osd_mclock_max_sequential_bandwidth_hdd": (ActsOn.ALL, "mClock's cost of large I/O on an HDD"),
    "osd_mclock_max_sequential_bandwidth_ssd": (ActsOn.ALL, "mClock's cost of large I/O on an SSD"),
    "osd_op_num_shards_hdd": (ActsOn.ALL, "queues of an OSD on an HDD"),
    "osd_op_num_threads_per_shard_hdd": (ActsOn.ALL, "threads of each queue of an OSD on an HDD"),
    "ms_tcp_prefetch_max_size": (ActsOn.ALL, "bytes that a connection reads ahead"),
    "bluestore_rocksdb_options": (ActsOn.WRITES, "BlueStore's database: memory tables, compaction, compression"),
    "bluestore_allocation_from_file": (ActsOn.WRITES, "free space is kept in a file, not in the database"),
    "bluefs_wal_envelope_mode": (ActsOn.WRITES, "fewer flushes for each entry of the database's log"),
    "bluestore_elastic_shared_blobs": (ActsOn.WRITES, "writes to images with snapshots or clones; new OSDs only"),
    "osd_ec_partial_reads": (ActsOn.ERASURE, "reads only the needed parts of a stripe"),
    "osd_pool_default_erasure_code_profile": (ActsOn.ERASURE, "the plugin of new pools that name none"),
    "bluestore_compression_min_blob_size_hdd": (ActsOn.COMPRESSION, "smallest unit that is compressed on an HDD"),
    "bluestore_compression_min_blob_size_ssd": (ActsOn.COMPRESSION, "smallest unit that is compressed on an SSD"),
    "osd_max_scrubs": (ActsOn.SCRUBBING, "scrubs of an OSD at one time"),
    "osd_scrub_chunk_max": (ActsOn.SCRUBBING, "objects that a scrub blocks at one time"),
    "osd_requested_scrub_priority": (ActsOn.SCRUBBING, "priority of scrubs that an administrator starts"),
    "osd_scrub_load_threshold": (ActsOn.SCRUBBING, "load of a host above which no scrub starts"),
    "osd_mclock_override_recovery_settings": (ActsOn.RECOVERY, "whether mClock lets osd_max_backfills act"),
}
"""What the options act on. Sources: their descriptions (``src/common/options``), Ceph's "mClock Config Reference",
"BlueStore Configuration Reference" and the release notes of Quincy, Reef, Squid and Tentacle."""

_FAST_PATH = ("bdev_", "bluefs_", "bluestore_", "ms_", "objecter_", "osd_", "rbd_", "rocksdb_")
"""Options of these prefixes may act on speed."""
_OTHER_WORDS = (
    "_dir", "plugins", "bind_port", "class_", "debug", "warn", "inject", "mclock_scheduler_", "crimson",
)  # fmt: skip
"""Parts of the names of options that do not act on speed, or only together with another one (mClock's profile
``custom``)."""


@dataclass(frozen=True, slots=True)
class DifferingDefault:
    """An option whose default is not the same in all compared releases.

    Attributes:
        name: of the option.
        values: default in each release, in their order; None where the release does not have the option.
        acts_on: the work whose speed it changes.
        what: what the option is, in a few words.
        at_creation: only OSDs that are created under the release take its default.
    """

    name: str
    values: tuple[str | None, ...]
    acts_on: ActsOn
    what: str
    at_creation: bool

    @property
    def shown(self) -> tuple[str, ...]:
        """The values for people: of a list ``a=1,b=2`` the parts that not all releases have; ``-`` for none."""
        lists = [dict.fromkeys(value.split(",")) for value in self.values if value is not None]
        if not all(len(parts) > 2 and all("=" in part for part in parts) for parts in lists):
            return tuple("-" if value is None else value or "empty" for value in self.values)
        common = set.intersection(*map(set, lists))
        return tuple(
            "-"
            if value is None
            else ",".join(part for part in value.split(",") if part not in common) or "the rest"
            for value in self.values
        )


def differing_defaults(releases: Sequence[KnownOptions]) -> tuple[DifferingDefault, ...]:
    """Return the options that act on speed and have different defaults, those that matter most first.

    An option that not all releases have counts only if its effect was examined: most new options default to the
    behaviour of the release before.

    Args:
        releases: at least two, oldest first.
    """
    tables = [{option.name: option for option in release.options} for release in releases]
    found = []
    for name in sorted({name for table in tables for name in table}):
        options = [table.get(name) for table in tables]
        present = [option for option in options if option is not None]
        if not _acts_on_speed(name, present, complete=len(present) == len(options)):
            continue
        if len(present) == len(options) and _is_same(present):
            continue
        newest = present[-1]
        acts_on, what = _EXAMINED.get(name, (ActsOn.UNKNOWN, newest.description))
        values = tuple(None if option is None else as_ceph_writes(option.default) for option in options)
        found.append(DifferingDefault(name, values, acts_on, what, newest.acts_at_creation_only))
    return tuple(sorted(found, key=_place))


def catalogues_of(versions: Sequence[str]) -> tuple[tuple[KnownOptions, ...], tuple[str, ...]]:
    """Return the known options of releases, and the versions of which none are known.

    Args:
        versions: such as ``18.2.4``. Another version of the same release stands in for one that is not known.
    """
    found, unknown = [], []
    for version in versions:
        try:
            found.append(_known_or_near(version))
        except InputError:
            unknown.append(version)
    return tuple(found), tuple(unknown)


def _known_or_near(version: str) -> KnownOptions:
    try:
        return known(version)
    except InputError:
        return known(".".join(version.split(".")[:2]))


def _acts_on_speed(name: str, present: Sequence[Option], *, complete: bool) -> bool:
    if name in _EXAMINED:
        return True
    if not complete or not name.startswith(_FAST_PATH) or any(word in name for word in _OTHER_WORDS):
        return False
    return any(option.level != "dev" for option in present)


def _place(default: DifferingDefault) -> tuple[int, str]:
    """Sort key: as in the list of examined options, which begins with those that act on most; then by name."""
    names = list(_EXAMINED)
    return (names.index(default.name) if default.name in _EXAMINED else len(names)), default.name


def _is_same(options: Sequence[Option]) -> bool:
    first = options[0]
    return all(same_value(option.type, first.default, option.default) for option in options)
