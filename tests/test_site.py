"""The documentation site: it builds without warnings, its links lead somewhere, its pages read as on the forge."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
FURTHER_PAGES = {
    "overview.html": "README.md",
    "contributing.html": "CONTRIBUTING.md",
    "changelog.html": "CHANGELOG.md",
    "benchmarks.html": "benchmarks/README.md",
    "index.html": "docs/README.md",
}
"""Pages with another name than their document."""
STRUCTURE = {
    "h1",
    "h2",
    "h3",
    "h4",
    "ul",
    "ol",
    "li",
    "pre",
    "table",
    "tr",
    "td",
    "th",
    "img",
    "blockquote",
    "code",
    "strong",
}

pytestmark = [pytest.mark.takes(seconds=15), pytest.mark.xdist_group("site")]


class _Page(HTMLParser):
    """What a page has: ids, links, sources of other files, and the structure and text of its main part."""

    def __init__(self, html: str, *, is_whole: bool = True) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.structure: list[str] = []
        self._texts: list[str] = []
        self._depth = 0 if is_whole else 1
        """Of elements `div` within the main part and itself; 0 outside of it."""
        self.feed(html)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", "", "".join(self._texts))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "div" and (self._depth or given.get("role") == "main"):
            self._depth += 1
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if source := given.get("src") or (given.get("href") if tag == "link" else None):
            self.loaded.append(source)
        if self._depth and tag in STRUCTURE:
            self.structure.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "div" and self._depth > 0

    def handle_data(self, data: str) -> None:
        if self._depth:
            self._texts.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    pytest.importorskip("mkdocs", reason="the site needs mkdocs: pip install 'cephfit[docs]'")
    folder = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, _Page]:
    """By name, without the page for addresses that do not exist."""
    return {path.name: _Page(path.read_text()) for path in site.glob("*.html") if path.name != "404.html"}


def test_every_document_is_a_page(pages: dict[str, _Page]) -> None:
    written = {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md") if path.name != "README.md"}
    assert pages.keys() == written | FURTHER_PAGES.keys()


def test_links_of_the_site_lead_somewhere(site: Path, pages: dict[str, _Page]) -> None:
    broken = []
    for name, page in pages.items():
        for link in [*page.links, *page.loaded]:
            address = urlsplit(link)
            if address.scheme or link == "#":
                continue
            target = (site / unquote(address.path)).resolve() if address.path not in ("", ".") else site / name
            anchors = pages[target.name].ids if target.name in pages else {""}
            if not target.exists() or (address.fragment and unquote(address.fragment) not in anchors):
                broken.append(f"{name}: {link}")
    assert broken == []


def test_links_to_the_project_name_files_that_exist(pages: dict[str, _Page]) -> None:
    project = "https://github.com/cephfit/cephfit/"
    found = {
        link
        for page in pages.values()
        for link in page.links
        if link.startswith((f"{project}blob", f"{project}tree"))
    }
    assert len(found) > 20
    assert [link for link in found if not (ROOT / link.removeprefix(project).split("/", 2)[2]).exists()] == []


def test_pages_load_nothing_from_other_hosts(pages: dict[str, _Page]) -> None:
    assert {name: page.loaded for name, page in pages.items() if any("//" in link for link in page.loaded)} == {}


def test_pages_read_as_on_the_forge(pages: dict[str, _Page]) -> None:
    """Text, lists, tables and code blocks equal those of a CommonMark renderer; MkDocs has another one."""
    forge = MarkdownIt("commonmark").enable("table")
    different = []
    for name, page in sorted(pages.items()):
        source = FURTHER_PAGES.get(name, f"docs/{name.removesuffix('.html')}.md")
        wanted = _Page(forge.render((ROOT / source).read_text()), is_whole=False)
        for ours, forges in ((page.text, wanted.text), (page.structure, wanted.structure)):
            if ours != forges:
                place = next(
                    (n for n, both in enumerate(zip(ours, forges, strict=False)) if both[0] != both[1]), len(ours)
                )
                around = slice(max(0, place - 20), place + 20)
                different.append(f"{name}: {ours[around]!r} on the site, {forges[around]!r} on the forge")
    assert different == []
