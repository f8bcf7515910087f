"""The example profiles that come with cephfit, found by name: ``example:pgbench``."""

from importlib import resources
from pathlib import Path

from cephfit.errors import InputError

_PREFIX = "example:"


def bundled_profile(path: Path) -> Path:
    """The file of an example profile that a path such as ``example:pgbench`` names; any other path as it is.

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
