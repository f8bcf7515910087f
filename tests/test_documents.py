"""The documents: links, paths in backticks, commands and their options exist."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cephfit.cli.main import cephfit

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "heat/README.md", "benchmarks/README.md")
    ),
    *sorted((ROOT / "docs").glob("*.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"`([\w.-]+/[\w./-]*)`")
PATH_ENDS = (".py", ".md", ".yaml", ".cfg", "/")
NO_PATHS = {"cephfit/lock/"}
"""A prefix of keys in the monitors' store."""


CODE = re.compile(r"^```\w*\n(.*?)^```|^ {4}(.*?\n)", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:sudo )?cephfit (.*?)(?:;|&&|\||\s#|$)", re.MULTILINE)


def names_of(documents: list[Path]) -> list[str]:
    return [str(document.relative_to(ROOT)) for document in documents]


def prose(document: Path) -> str:
    """The text of a document without its code blocks."""
    return re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(document: Path) -> set[str]:
    """Names of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(document), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> Iterator[str]:
    for link in LINK.findall(prose(document)):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def missing_paths(document: Path) -> Iterator[str]:
    for path in PATH.findall(prose(document)):
        of_repository = (ROOT / path.split("/")[0]).is_dir()
        if of_repository and path.endswith(PATH_ENDS) and path not in NO_PATHS and not (ROOT / path).exists():
            yield path


def wrong_commands(document: Path) -> Iterator[str]:
    """Commands in code blocks that name a command or an option that does not exist."""
    code = "".join("".join(parts) for parts in CODE.findall(document.read_text())).replace("\\\n", " ")
    for line in COMMAND.findall(code):
        words = shlex.split(line)
        command: click.Command = cephfit
        context = click.Context(command, info_name="cephfit", help_option_names=["-h", "--help"])
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            found = command.get_command(context, words.pop(0))
            if found is None:
                yield line
                break
            command = found
        else:
            known = {name for parameter in command.get_params(context) for name in parameter.opts}
            asked = {word.split("=")[0] for word in words if re.match(r"-[a-z-]", word)}
            if not asked <= known:
                yield f"{line}: {sorted(asked - known)}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=names_of(DOCUMENTS))
def test_links_lead_somewhere(document: Path) -> None:
    assert list(broken_links(document)) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=names_of(DOCUMENTS))
def test_paths_in_backticks_exist(document: Path) -> None:
    assert list(missing_paths(document)) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=names_of(DOCUMENTS))
def test_commands_and_their_options_exist(document: Path) -> None:
    assert list(wrong_commands(document)) == []


def test_the_list_of_commands_is_up_to_date() -> None:
    """Otherwise run `.venv/bin/python docs/make_commands.py` and commit docs/commands.md."""
    program = "import runpy; print(runpy.run_path('docs/make_commands.py')['document'](), end='')"
    argv = [sys.executable, "-c", program]  # a process of its own: click keeps the help option of the first call
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == (ROOT / "docs" / "commands.md").read_text()


def test_every_document_is_in_the_list_of_documents() -> None:
    listed = set(LINK.findall((ROOT / "docs" / "README.md").read_text()))
    written = {document.name for document in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert written <= listed


def test_what_is_broken_is_found(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "# One page\n[a](page.md#one-page) [b](page.md#two) [c](gone.md) `docs/gone.md` `docs/method.md`\n"
    )
    assert list(broken_links(document)) == ["page.md#two", "gone.md"]
    assert list(missing_paths(document)) == ["docs/gone.md"]


def test_wrong_commands_are_found(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "cephfit is a word here\n```\ncephfit sweep ran quick\nsudo cephfit map p.json --nope 1 && true\n```\n\n"
        "    cephfit sweep run quick --target sim   # it is right\n"
    )
    assert list(wrong_commands(document)) == ["sweep ran quick", "map p.json --nope 1 : ['--nope']"]
