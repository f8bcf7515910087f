"""The rooms' walls: who may import whom is the table of docs/design.md."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("traces", "mapper", "results", "sweep", "lab")
MAY_IMPORT = {
    "traces": set(),
    "mapper": set(),
    "results": set(),
    "sweep": {"results"},
    "lab": {"sweep"},
}


def imported_rooms(source: Path) -> set[str]:
    """Rooms that a module imports anywhere in it, also inside functions."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    parts = [name.split(".") for name in names if name.startswith("cephfit.")]
    return {p[1] for p in parts if p[1] in (*ROOMS, "cli", "_api")}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_the_design_lets_it(room: str) -> None:
    modules = sorted((ROOT / room).rglob("*.py"))
    assert modules, f"{room}/ has no modules"
    for module in modules:
        strangers = imported_rooms(module) - MAY_IMPORT[room] - {room}
        assert not strangers, f"{module.relative_to(ROOT)} reaches into {sorted(strangers)}"


def test_the_command_line_does_not_import_the_python_api() -> None:
    for module in (ROOT / "cephfit" / "cli").rglob("*.py"):
        assert "_api" not in imported_rooms(module), f"{module.name}: what both use belongs below both"


def test_the_vocabulary_imports_no_room() -> None:
    for module in (ROOT / "cephfit").glob("*.py"):
        if module.name == "__init__.py":
            continue  # names the Python API, and loads it when it is used
        assert not imported_rooms(module), f"{module.name} is vocabulary and may not know the rooms"


def test_heat_is_no_python_package() -> None:
    assert not (ROOT / "heat" / "__init__.py").exists(), "OpenStack's own package is called heat"
