"""The documents: links, paths in backticks, commands and their options exist."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from document_commands import commands_of, fault_of, inline_commands_of

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
    """Commands in code blocks that the command line refuses, and those in prose that do not exist."""
    for is_whole, commands in ((True, commands_of(document)), (False, inline_commands_of(document))):
        for words in commands:
            if fault := fault_of(words, is_whole=is_whole):
                yield f"{' '.join(words)}: {fault}"


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
        "cephfit is a word here, `cephfit map --next` an option, `cephfit map --nest` and `cephfit mop` are not\n"
        "```\ncephfit sweep ran quick\nsudo cephfit map p.json --baselines s --nope 1 && true\n$ cephfit map\n"
        'C=(--store s --load 1)\ntrue; .venv/bin/cephfit sweep status "${C[@]}" > out  # wrong\n'
        "cephfit map p.json --baselines s --confidence high\ncephfit map p.json \\\n    --baselines\n"
        "cephfit sweep list one\n```\n\n"
        "    cephfit sweep run quick --target sim   # it is right\n"
    )
    assert [line.partition(": ")[0] for line in wrong_commands(document)] == [
        "sweep ran quick",
        "map p.json --baselines s --nope 1",
        "map",
        "sweep status --store s --load 1",
        "map p.json --baselines s --confidence high",
        "map p.json --baselines",
        "sweep list one",
        "map --nest",
        "mop",
    ]
