"""The imports between the rooms: docs/design.md has the table of which room may import which."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "core": set[str](),
    "traces": {"core"},
    "ceph": {"core"},
    "measure": {"core", "ceph"},
    "cloud": {"core", "measure"},
    "targets": {"core", "ceph", "measure", "cloud"},
    "results": {"core"},
    "sweep": {"core", "ceph", "measure", "targets", "results"},
    "mapper": {"core"},
    "lab": {"core", "ceph", "targets", "cloud"},
}
ABOVE = ("operations", "_api", "server", "cli")
"""Subpackages above the rooms: each may import every room, and all but the first also ``operations``."""
FORBIDDEN_ABOVE = {
    "operations": {"_api", "server", "cli"},
    "_api": {"server", "cli"},
    "server": {"_api", "cli"},
    "cli": {"_api"},
}


def folder_of(room: str) -> Path:
    return ROOT / "cephfit" / "core" if room == "core" else ROOT / room


def imported_rooms(source: Path) -> Iterator[str]:
    """Rooms that a module imports anywhere in it, also inside functions."""
    for node in ast.walk(ast.parse(source.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
        for name in names:
            first, _, rest = name.partition(".")
            if first == "cephfit":
                yield rest.split(".")[0]


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_allowed_rooms(room: str) -> None:
    modules = sorted(folder_of(room).rglob("*.py"))
    assert modules, f"{room}/ has no modules"
    others = {*MAY_IMPORT, *ABOVE} - MAY_IMPORT[room] - {room}
    for module in modules:
        forbidden = others & set(imported_rooms(module))
        assert not forbidden, f"{module.relative_to(ROOT)} imports from {sorted(forbidden)}"


@pytest.mark.parametrize("subpackage", ABOVE)
def test_the_python_api_imports_nothing_of_the_command_line(subpackage: str) -> None:
    modules = sorted((ROOT / "cephfit" / subpackage).rglob("*.py"))
    assert modules
    for module in modules:
        forbidden = FORBIDDEN_ABOVE[subpackage] & set(imported_rooms(module))
        assert not forbidden, f"{module.relative_to(ROOT)} imports from {sorted(forbidden)}"


def test_the_imports_between_rooms_have_no_circle() -> None:
    left = dict(MAY_IMPORT)
    while left:
        free = [room for room, needs in left.items() if not needs & left.keys()]
        assert free, f"a circle among {sorted(left)}"
        for room in free:
            del left[room]


def test_the_design_has_the_same_table() -> None:
    rows = {}
    for line in (ROOT / "docs" / "design.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].strip("`/").removeprefix("cephfit/") in MAY_IMPORT:
            rows[cells[0].strip("`/").removeprefix("cephfit/")] = set(cells[2].split(", ")) - {"nothing of ours"}
    assert rows == MAY_IMPORT


def test_heat_is_no_python_package() -> None:
    assert not (ROOT / "heat" / "__init__.py").exists(), "OpenStack's own package is called heat"


@pytest.mark.parametrize(
    "folder",
    [*map(folder_of, MAY_IMPORT), *(ROOT / "cephfit" / name for name in ABOVE)],
)
def test_a_folder_has_few_modules_and_says_what_they_are(folder: Path) -> None:
    for package in [folder, *(path.parent for path in folder.rglob("*/__init__.py"))]:
        modules = [path for path in package.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= 12, f"{package.relative_to(ROOT)} has {len(modules)} modules"
        assert ast.get_docstring(ast.parse((package / "__init__.py").read_text())), package
