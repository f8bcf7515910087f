"""Who lists in sudoers what the documentation lists gets no question for a password."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import cephfit

ROOT = Path(cephfit.__file__).parents[1]
DOCS = Path(__file__).resolve().parents[3] / "docs" / "greater.md"


def first_word(node: ast.expr, constants: dict[str, ast.expr]) -> str:
    """The program of a literal argument vector in the code; empty for other expressions."""
    if isinstance(node, ast.Name) and node.id in constants:
        node = constants[node.id]
    if isinstance(node, ast.List | ast.Tuple) and node.elts and isinstance(node.elts[0], ast.Constant):
        return str(node.elts[0].value)
    return ""


def programs_on_hosts() -> Iterator[str]:
    """First words of all that is run by ``checked(host, [...])`` and ``Host.run([...])``."""
    for room in ("ceph/admin", "ceph/delivery", "ceph/environment", "ceph", "measure/telemetry"):
        for file in (ROOT / room).glob("*.py"):
            tree = ast.parse(file.read_text())
            constants = {
                target.id: node.value
                for node in tree.body
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
                if isinstance(call.func, ast.Name) and call.func.id == "checked":
                    yield first_word(call.args[1], constants)
                elif isinstance(call.func, ast.Attribute) and call.func.attr in ("run", "_plain") and call.args:
                    yield first_word(call.args[0], constants)


def test_every_program_that_runs_on_a_host_is_in_the_list_for_sudoers() -> None:
    used = set(programs_on_hosts()) - {""}
    assert used >= {"grep", "tee", "tail", "find", "systemctl", "tc", "base64"}, "the search finds them"
    table = DOCS.read_text().partition("| for | programs |")[2].partition("\n\n")[0]
    listed = set(re.findall(r"`([a-z0-9]+)`", "".join(line.split("|")[2] for line in table.splitlines()[2:])))
    assert listed == used - {"id"}, "`id` is run as the user"
