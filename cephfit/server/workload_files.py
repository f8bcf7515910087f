"""Uploaded files of one workload: a profile, or the traces of one recording."""

from collections.abc import Mapping
from pathlib import Path

import cephfit
from cephfit.core.errors import InputError
from cephfit.core.profile_files import read_profile
from cephfit.core.values.profile import Profile
from cephfit.traces.description.description_schema import check_description

READ_OPTIONS = ("name", "format", "columns", "assume_op", "action", "blkparse_format", "parts", "describe")
"""Fields of an upload that describe its files, as ``cephfit.profile_trace`` takes them."""
_PROFILE_NBYTES = 64 << 20
"""Larger files are not read as a profile."""


def read_workload(folder: Path, options: Mapping[str, str]) -> Profile:
    """Read the files of a folder: one profile, or traces that are read together.

    Args:
        folder: with the uploaded files only.
        options: of ``READ_OPTIONS``; empty values are not given.

    Raises:
        InputError: they are neither, or damaged.
    """
    files = sorted(folder.iterdir())
    if len(files) == 1 and not options.get("format") and (found := _profile_in(files[0])) is not None:
        return found
    given = {key: options.get(key) or None for key in READ_OPTIONS}
    return cephfit.profile_trace(
        files,
        name=given["name"],
        format=given["format"],
        action=given["action"],
        parts=given["parts"] is not None,
        describe=given["describe"] or "fast",
        assume_op=given["assume_op"],
        columns=given["columns"],
        blkparse_format=given["blkparse_format"],
    )


def _profile_in(file: Path) -> Profile | None:
    """Return the profile in a file of `cephfit trace profile -o`; None for a trace."""
    with file.open("rb") as opened:
        if opened.read(1) != b"{" or file.stat().st_size > _PROFILE_NBYTES:
            return None
    try:
        found = read_profile(file)
    except InputError:
        if file.suffix == ".json":
            raise
        return None
    check_description(found.description, where=file.name)
    return found
