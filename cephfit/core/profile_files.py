"""Read profiles from files, from standard input, and from the bundled examples (``example:pgbench``)."""

import sys
from importlib import resources
from pathlib import Path

from cephfit.core.errors import InputError
from cephfit.core.values.profile import Profile

_PREFIX = "example:"
_MAKE_ONE = "create a profile from a trace with `cephfit trace profile TRACE -o profile.json`"
_MOST_NBYTES = 256 << 20
"""Far more than any profile has. A trace of many GiB that is given by mistake is not read as a whole."""


def bundled_profile(path: Path) -> Path:
    """Return the file of an example profile such as ``example:pgbench``; return any other path unchanged.

    Raises:
        InputError: there is no example of this name.
    """
    text = str(path)
    if not text.startswith(_PREFIX) or path.exists():
        return path
    folder = Path(str(resources.files("cephfit"))) / "example_profiles"
    file = folder / f"{text.removeprefix(_PREFIX)}.json"
    if file.parent != folder or not file.is_file():
        names = ", ".join(f"{_PREFIX}{other.stem}" for other in sorted(folder.glob("*.json")))
        raise InputError("there is no example profile of this name", where=text, remedy=f"there are {names}")
    return file


def read_profile(path: Path) -> Profile:
    """Read a profile from a file, from standard input (``-``) or from the examples (``example:pgbench``).

    Raises:
        InputError: it cannot be read, or is not a profile.
    """
    if str(path) == "-":
        return _profile_from_standard_input()
    path = bundled_profile(path)
    if path.is_dir():
        files = sorted(f.name for f in path.glob("*.json"))
        remedy = f"name a file in it: {', '.join(files)}" if files else "it contains no .json file; name a profile"
        raise InputError("this is a folder, not a profile", where=str(path), remedy=remedy)
    try:
        with path.open("rb") as opened:
            content = opened.read(_MOST_NBYTES + 1)
        if len(content) > _MOST_NBYTES:
            raise InputError("this is too large for a profile", where=str(path), remedy=_MAKE_ONE)
        text = content.decode()
    except UnicodeDecodeError:
        raise InputError("this is not a text file", where=str(path), remedy=_MAKE_ONE) from None
    except OSError as error:
        file, colon, number = str(path).rpartition(":")
        counted = f"the file {file} exists: this command takes no number of machines, or {number!r} is none"
        remedy = counted if colon and Path(file).is_file() else _MAKE_ONE
        raise InputError(f"the profile cannot be read: {error.strerror}", where=str(path), remedy=remedy) from None
    return Profile.loads(text, where=str(path))


def _profile_from_standard_input() -> Profile:
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise InputError("this is not text in UTF-8", where="standard input", remedy=_MAKE_ONE) from None
    return Profile.loads(text, where="standard input")
