"""What clusters said of their options, kept per version, for people who plan without a cluster at hand."""

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

from platformdirs import user_data_path

from cephfit.errors import InputError
from cephfit.sweep.options.option import Option

_SCHEMA_VERSION = 1


def archive_folder() -> Path:
    """``$XDG_DATA_HOME`` (else ``~/.local/share``) ``/cephfit/options``."""
    return user_data_path("cephfit") / "options"


def keep(version: str, options: Iterable[Option], *, folder: Path | None = None) -> Path:
    """Keep the options of a release; a file of this version is replaced whole, or not at all.

    Args:
        version: such as ``16.2.15``.
        options: all of them.
        folder: of the archive; None takes ``archive_folder``.
    """
    folder = folder or archive_folder()
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "schema_version": _SCHEMA_VERSION,
        "ceph_version": version,
        "options": [option.to_json() for option in options],
    }
    path = folder / f"{version}.json"
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".part", delete=False) as part:
        json.dump(document, part, indent=1)
    return Path(part.name).replace(path)


def kept_versions(*, folder: Path | None = None) -> tuple[str, ...]:
    """Versions whose options are kept, sorted."""
    return tuple(sorted(path.stem for path in (folder or archive_folder()).glob("*.json")))


def kept(version: str, *, folder: Path | None = None) -> tuple[str, tuple[Option, ...]]:
    """The whole version and its options, as some cluster once gave them.

    Args:
        version: whole (``16.2.15``) or its beginning (``16``), where only one kept version begins so.
        folder: of the archive; None takes ``archive_folder``.

    Raises:
        InputError: none or several are kept, or the file is damaged.
    """
    folder = folder or archive_folder()
    versions = kept_versions(folder=folder)
    fitting = [v for v in versions if v == version] or [v for v in versions if v.startswith(f"{version}.")]
    if len(fitting) != 1:
        there = f"kept are {', '.join(versions)}" if versions else "none are kept yet"
        raise InputError(
            f"{'no' if not fitting else 'more than one'} version {version} among the kept options",
            where=str(folder),
            remedy=f"{there}; `cephfit params tree --target TARGET` keeps those of a running cluster",
        )
    path = folder / f"{fitting[0]}.json"
    try:
        document = json.loads(path.read_text())
        if document["schema_version"] != _SCHEMA_VERSION:
            raise InputError(f"its schema_version is {document['schema_version']}", where=str(path))
        return fitting[0], tuple(Option.from_json(one) for one in document["options"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"this file of options is damaged ({error})",
            where=str(path),
            remedy="delete it; `cephfit params tree --target TARGET` writes it again",
        ) from None
