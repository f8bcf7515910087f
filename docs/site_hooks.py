"""Hooks of MkDocs for the documentation site (mkdocs.yml). They make the pages read as on the forge.

Links to files of the repository that are no pages become links to the project. Headings have the forge's anchors.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
BRANCH = "main"
FURTHER_PAGES = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Documents outside of docs/ that are pages of the site, by their path in the repository."""
SOURCES = {page: source for source, page in FURTHER_PAGES.items()}
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give headings the anchors of the forge."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor_of
    return config


def anchor_of(heading: str, separator: str) -> str:
    """Return the forge's anchor of a heading: without punctuation, one dash for each blank."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents outside of docs/."""
    for source, page in FURTHER_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to pages of the site, or else to the project."""
    uri = page.file.src_uri
    folder = posixpath.dirname(SOURCES.get(uri, f"docs/{uri}"))

    def replaced(link: re.Match[str]) -> str:
        return f"{link[1]}{_target(link[2], folder, config, files)}{link[3]}"

    parts = FENCED.split(markdown)
    parts[::2] = [LINK.sub(replaced, part) for part in parts[::2]]
    return "".join(parts)


def _target(link: str, folder: str, config: Any, files: Files) -> str:
    """Return where a link leads, of a document in a folder of the repository; unchanged without such a file."""
    if "://" in link:
        return link
    path = posixpath.normpath(posixpath.join(folder, link))
    uri = FURTHER_PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else "")
    file = files.get_file_from_path(uri) if uri else None
    if file is not None and file.inclusion.is_included():
        return uri
    if not (ROOT / path).exists():
        return link
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{config.repo_url.rstrip('/')}/{kind}/{BRANCH}/{path}"
