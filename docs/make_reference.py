"""Write docs/store.md and docs/python-reference.md: from the tables of the store, and from docstrings.

Run with: .venv/bin/python docs/make_reference.py
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Table, UniqueConstraint

import cephfit
from cephfit.results.store import schema

FOLDER = Path(__file__).parent
WIDTH = 100
STORE_INTRODUCTION = f"""# The tables of a store

`docs/make_reference.py` writes this page from the program; do not edit it. It describes version
{schema.SCHEMA_VERSION} of the tables. A store of an earlier version is upgraded when it is opened
([runs.md](runs.md#schema-versions-of-a-store)).

SQLite and PostgreSQL have the same tables. Their names begin with `cephfit_`, so that a database may hold other
tables. Read them with any client, and do not write into them. Samples are never changed, and statistics are
computed from them on request. The columns of a Parquet export are in [runs.md](runs.md#the-parquet-file).
"""
API_INTRODUCTION = """# Python API: all names

`docs/make_reference.py` writes this page from the docstrings; do not edit it. [python.md](python.md) is a tour.
Only these names are public: `import cephfit` has them all. Values are immutable. Those that are tables also have
`to_frame()`, which returns a pandas data frame.
"""
SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):$\n", re.MULTILINE)
ENTRY = re.compile(r"^([\w.*]+(?:, [\w.]+)*): ", re.MULTILINE)
FRAME_METHODS = ("to_frame",)
"""Methods of every table, which the introduction names."""


def store_document() -> str:
    """Return the text of docs/store.md."""
    return "\n".join([STORE_INTRODUCTION, *(_table(table) for table in schema.TABLES.tables.values())])


def _table(table: Table) -> str:
    rows = [f"| `{column.name}` | {_type(column)} | {_key(column)} | {column.doc} |" for column in table.columns]
    unique = [
        f"\nEach combination of {', '.join(f'`{column.name}`' for column in constraint.columns)} occurs once.\n"
        for constraint in table.constraints
        if isinstance(constraint, UniqueConstraint) and len(constraint.columns) > 1
    ]
    head = f"## {table.name}\n\n{table.info[schema.DESCRIPTION]}\n"
    return "\n".join([head, "| column | type | key | content |\n|---|---|---|---|", *rows, *(unique or [""])])


def _type(column: Column[Any]) -> str:
    words = str(column.type).lower().replace("blob", "bytes")
    return words + (", or null" if column.nullable else "")


def _key(column: Column[Any]) -> str:
    if column.primary_key:
        return "primary"
    if column.foreign_keys:
        (foreign,) = column.foreign_keys
        return f"of [{foreign.column.table.name}](#{foreign.column.table.name})"
    return "unique" if column.unique else ""


def api_document() -> str:
    """Return the text of docs/python-reference.md."""
    named = [(name, getattr(cephfit, name)) for name in cephfit.__all__ if name != "__version__"]
    groups = {
        "Functions": [(name, value) for name, value in named if inspect.isfunction(value)],
        "Values": [(n, v) for n, v in named if inspect.isclass(v) and not issubclass(v, Exception)],
        "Errors": [(n, v) for n, v in named if inspect.isclass(v) and issubclass(v, Exception)],
    }
    parts = [API_INTRODUCTION]
    for title, group in groups.items():
        parts += [f"## {title}\n", *(text for name, value in group for text in _entry(name, value))]
    return "\n".join(parts)


def _entry(name: str, value: Any) -> Iterator[str]:
    """Yield the section of a public name, and those of the methods of a class."""
    is_class = inspect.isclass(value)
    yield f"### {name}\n"
    if not is_class:
        yield _signature(f"cephfit.{name}", value)
    yield _markdown(inspect.getdoc(value) or "")
    for method, member in sorted(vars(value).items()) if is_class else ():
        function = member.__func__ if isinstance(member, classmethod) else member
        if method.startswith("_") or method in FRAME_METHODS:
            continue
        if isinstance(function, property):
            yield f"**`{name}.{method}`**: {_first_line(function)}\n"
        elif inspect.isfunction(function):
            yield f"#### {name}.{method}\n"
            yield _signature(f"{name}.{method}", function)
            yield _markdown(inspect.getdoc(function) or "")


def _first_line(value: Any) -> str:
    return _inline((inspect.getdoc(value) or "").partition("\n\n")[0])


def _signature(name: str, function: Callable[..., Any]) -> str:
    """Return a call with all parameters, without ``self`` and ``cls``; one parameter per line where it is long."""
    signature = inspect.signature(function)
    given = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    words = [_without_modules(str(parameter)) for parameter in given]
    keyword_only = [p.kind is p.KEYWORD_ONLY for p in given]
    if any(keyword_only):
        words.insert(keyword_only.index(True), "*")
    end = ")"
    if signature.return_annotation is not signature.empty:
        end += f" -> {_without_modules(inspect.formatannotation(signature.return_annotation)).strip(chr(39))}"
    line = f"{name}({', '.join(words)}{end}"
    if len(line) > WIDTH:
        line = "\n".join([f"{name}(", *(f"    {word}," for word in words), end])
    return f"```python\n{line}\n```\n"


def _without_modules(text: str) -> str:
    """Return an annotation without the modules of its names, and without quotation marks around it."""
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", re.sub(r": '([^']*)'", r": \1", text))


def _markdown(docstring: str) -> str:
    """Convert a docstring: its sections become lists."""
    text, *sections = SECTION.split(docstring)
    parts = [_inline(text.strip())] if text.strip() else []
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        after = re.search(r"^\S", body, re.MULTILINE)  # text after the section is not indented
        end = after.start() if after else len(body)
        parts.append(f"*{title}*\n\n{_list(textwrap.dedent(body[:end]).strip())}")
        parts += [_inline(body[end:].strip())] if after else []
    return "\n\n".join(parts) + "\n"


def _list(section: str) -> str:
    """Return the entries ``name: text`` of a section as a list; a section without entries is text."""
    text, *parts = ENTRY.split(section)
    if text or not parts:
        return _inline(section)
    entries = zip(parts[::2], parts[1::2], strict=True)
    return "\n".join(f"- `{name}`: {_inline(' '.join(words.split()))}" for name, words in entries)


def _inline(text: str) -> str:
    return re.sub(r"``(.*?)``", r"`\1`", text, flags=re.DOTALL)


if __name__ == "__main__":
    (FOLDER / "store.md").write_text(store_document())
    (FOLDER / "python-reference.md").write_text(api_document())
