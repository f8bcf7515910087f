"""The options of Ceph releases and their changes, for planning without access to a cluster.

There are two sources: the archive on this machine, with earlier answers of clusters, and the files that come with
cephfit (``releases/``). ``cephfit params export`` wrote these from a monitor and a manager of Debian's packages.
The archive takes precedence: it has the builds in actual use. Both have the same format.
"""

import gzip
import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from platformdirs import user_data_path

from cephfit.ceph.options.option import Option, same_value
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
    """The files that come with cephfit."""
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


def known(version: str, *, folder: Path | None = None) -> KnownOptions:
    """Read the options of a release from the archive or, if it has no match, from cephfit's files.

    Args:
        version: complete (``16.2.15``), a unique prefix (``16``), or the name of the release (``pacific``).
        folder: of the archive; None takes ``archive_folder``.

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
        where="--release",
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
    before, after = known(older), known(newer)
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
