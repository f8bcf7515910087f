"""The text of a ceph.conf: what it says to a daemon, and lines of ours at its end that come out again.

Ceph reads sections of one name as one, and of several lines for one option in it the last one holds (ConfUtils.cc
of every release); a daemon's own section (``osd.3``) beats that of its type, which beats ``global``. So lines of
ours at the end of the file win over the same sections above them, and nothing above them has to be touched.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import jinja2

from cephfit.errors import InputError

Sections = Mapping[str, Mapping[str, str]]
"""Section (``global``, ``osd``, ``osd.3`` ...) to option to value."""

_BEGIN = b"# >>> cephfit"
_END = b"# <<< cephfit"
_BLOCK = re.compile(rb"\n# >>> cephfit[^\n]*\n(?:(?!# [<>]{3} cephfit)[^\n]*\n)*# <<< cephfit[^\n]*\n")
"""The line break before it belongs to it: the file above may end without one."""
_HEADING = re.compile(r"\s*\[([^\]]*)\]")
_COMMENT = re.compile(r"(?<!\\)[#;]")
_SPECIAL = re.compile(r"([\\#;\"'])")


class TornBlockError(ValueError):
    """The lines of cephfit are there but not whole."""


def without_block(content: bytes) -> bytes:
    """The file without the lines of cephfit; exactly what it was before they were put in.

    Raises:
        TornBlockError: one of the lines that mark their begin and end is gone.
    """
    rest = _BLOCK.sub(b"", content)
    if any(line.startswith((_BEGIN, _END)) for line in rest.splitlines()):
        raise TornBlockError
    return rest


def text_without_block(path: Path) -> str:
    """A ceph.conf of this machine without the lines of cephfit, as text.

    Raises:
        InputError: it is no text, or lines of ours are in it and not whole.
    """
    try:
        return without_block(path.read_bytes()).decode()
    except TornBlockError:
        raise InputError(
            "somebody edited cephfit's lines in it, and where they end is not clear",
            where=str(path),
            remedy="take out the lines from `# >>> cephfit` to `# <<< cephfit`",
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start} is not UTF-8", where=str(path), remedy="save it as UTF-8, or plain ASCII"
        ) from None


def with_block(original: bytes, sections: Sections, *, configuration: str) -> bytes:
    """The file with sections at its end.

    Args:
        original: without any lines of cephfit.
        sections: what they are to say; empty for none.
        configuration: whose they are, for people who read the file.

    Raises:
        InputError: a value that no line of such a file can safely hold.
    """
    if not any(sections.values()):
        return original
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, autoescape=False)
    template = environment.from_string((files("cephfit.templates") / "conf_block.j2").read_text())
    lines = template.render(
        begin=_BEGIN.decode(),
        end=_END.decode(),
        configuration=" ".join(configuration.encode("ascii", "replace").decode().split()),
        sections={
            name: {key: escaped(value, key) for key, value in sorted(options.items())}
            for name, options in sorted(sections.items(), key=lambda item: (_rank(item[0]), item[0]))
            if options
        },
    )
    return original + b"\n" + lines.encode("ascii") + b"\n"


def escaped(value: str, key: str) -> str:
    """A value as a line of the file takes it.

    Raises:
        InputError: it has a line break or other control characters, ends with a backslash, which would join the
            next line to it, or is not ASCII: some builds of Ceph (Debian's Pacific, for one) end at that, be it
            in a comment.
    """
    if not value.isascii() or not value.isprintable() or value.endswith("\\"):
        raise InputError(
            f"the value {value!r} cannot safely stand in a ceph.conf",
            where=key,
            remedy="only printable ASCII can, without a backslash at its end",
        )
    return _SPECIAL.sub(r"\\\1", value)


def sections_of(content: bytes) -> dict[str, dict[str, str]]:
    """What a file says, as Ceph reads it; what stands before the first section is left out, as Ceph leaves it out.

    Bytes that are no UTF-8 become question marks: Ceph refuses such a file.
    """
    found: dict[str, dict[str, str]] = {}
    section: dict[str, str] | None = None
    text = content.decode(errors="replace").replace("\\\r\n", "").replace("\\\n", "")
    for line in text.split("\n"):
        if heading := _HEADING.match(line):
            section = found.setdefault(heading[1].strip(), {})
            continue
        key, is_pair, value = _COMMENT.split(line, maxsplit=1)[0].partition("=")
        if is_pair and key.strip() and section is not None:
            section["_".join(key.split())] = _plain(value.strip())
    return found


def effective(sections: Sections, names: tuple[str, ...]) -> dict[str, str]:
    """What several sections say together.

    Args:
        sections: of a file.
        names: the sections that a daemon reads, the weakest first: ``("global", "osd", "osd.3")``.
    """
    found: dict[str, str] = {}
    for name in names:
        found.update(sections.get(name, {}))
    return found


def merged(first: Sections, second: Sections) -> dict[str, dict[str, str]]:
    """Two parts of a file, one after the other."""
    names = dict.fromkeys([*first, *second])
    return {name: {**first.get(name, {}), **second.get(name, {})} for name in names}


def _plain(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return re.sub(r"\\(.)", r"\1", value)


def _rank(section: str) -> int:
    return 0 if section == "global" else 2 if "." in section else 1
