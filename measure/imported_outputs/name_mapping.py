"""How names of files, folders and jobs become configurations, clients and repeats: known ones, and a mapping file.

::

    files:                                  # the first rule whose expression is found in the path is used
      - match: '(?P<configuration>hdd|ssd)/host(?P<client>\\d+)-run(?P<repeat>\\d+)'
      - {match: 'warmup', skip: true}
    jobs:                                   # the same for names of jobs; its values come first
      - {match: '^seq-', sync: fsync}
    configurations: {hdd: A}                # other names for configurations; A is the default
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.units import LBN_NBYTES, parse_nbytes
from cephfit.core.values.cells import Pattern
from cephfit.core.yaml_lines import Located, nearest, read_yaml
from cephfit.measure.imported_outputs.output_reader import FileHints

VALUES = ("configuration", "client", "repeat", "pattern", "size", "iodepth", "align", "sync")
"""What a rule can state, as a key or as a named group of its expression."""
_SYNC = re.compile(r"fsync|dsync|every [1-9]\d{0,5}", re.ASCII)


@dataclass(slots=True)
class Rule:
    """One rule.

    Attributes:
        where: file and line.
        expression: searched in the name.
        values: stated by keys.
        skip: leave out what it matches.
        n_used: how many names it has matched.
    """

    where: str
    expression: re.Pattern[str]
    values: Mapping[str, str]
    skip: bool
    n_used: int = 0

    def found_in(self, name: str) -> dict[str, str] | None:
        """Return the values for a name; None if the expression is not in it."""
        match = self.expression.search(name)
        if match is None:
            return None
        self.n_used += 1
        return {**self.values, **{key: value for key, value in match.groupdict().items() if value is not None}}


@dataclass(frozen=True, slots=True)
class NameMapping:
    """The rules of a mapping file.

    Attributes:
        files: for paths with ``/`` between folders.
        jobs: for names of jobs.
        configurations: other names of configurations.
    """

    files: tuple[Rule, ...] = ()
    jobs: tuple[Rule, ...] = ()
    configurations: Mapping[str, str] = field(default_factory=dict)

    def of_file(self, path: str) -> tuple[Rule | None, Mapping[str, str]]:
        """Return the first rule that matches and its values; None without one."""
        return _first(self.files, path)

    def of_job(self, name: str) -> tuple[Rule | None, Mapping[str, str]]:
        """Likewise for a job's name."""
        return _first(self.jobs, name)

    def unused(self) -> list[str]:
        """Return the places of rules that have matched nothing."""
        return [rule.where for rule in (*self.files, *self.jobs) if not rule.n_used]


def _first(rules: tuple[Rule, ...], name: str) -> tuple[Rule | None, Mapping[str, str]]:
    for rule in rules:
        if (values := rule.found_in(name)) is not None:
            return rule, values
    return None, {}


def read_mapping(path: Path) -> NameMapping:
    """Read a mapping file.

    Raises:
        InputError: it cannot be read or used; names file and line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or "it is not text in UTF-8"
        raise InputError(
            f"cannot read the mapping: {why}", where=str(path), remedy="give a YAML file with rules (`files:`)"
        ) from None
    if not text.strip():
        raise InputError(
            "the mapping is empty", where=str(path), remedy="give rules (`files:`), or omit --mapping"
        )
    parts = read_yaml(text, file=str(path)).mapping(("files", "jobs", "configurations"))
    renamed = parts["configurations"].mapping() if "configurations" in parts else {}
    return NameMapping(
        _rules(parts.get("files")),
        _rules(parts.get("jobs")),
        {name: str(new.scalar()) for name, new in renamed.items()},
    )


def _rules(entry: Located | None) -> tuple[Rule, ...]:
    return () if entry is None else tuple(_rule(item) for item in entry.items())


def _rule(entry: Located) -> Rule:
    parts = entry.mapping(("match", "skip", *VALUES), required=("match",))
    try:
        expression = re.compile(parts["match"].text())
    except re.error as error:
        parts["match"].refuse(
            f"not a regular expression: {error}", "write it in single quotes, as Python's re module reads it"
        )
    for group in expression.groupindex:
        if group not in VALUES:
            parts["match"].refuse(
                f"the group {group!r} names nothing that a rule can state", nearest(group, VALUES)
            )
        if group in parts:
            parts[group].refuse(f"{group} is stated by a group of the expression and by a key", "keep one of them")
    values = {name: str(parts[name].scalar()) for name in VALUES if name in parts}
    for name, text in values.items():
        if wrong := fault_of(name, text):
            parts[name].refuse(wrong)
    return Rule(entry.where, expression, values, parts["skip"].truth() if "skip" in parts else False)


_ALLOWED = {
    "repeat": "a whole number from 0 to 999999",
    "iodepth": "a whole number from 1 to 999999",
    "pattern": f"one of {', '.join(Pattern)}",
    "size": "a multiple of 512 bytes, such as 4K",
    "align": "a power of two from 512 on, such as 4K",
    "sync": "fsync, dsync or every N",
}
"""What a value can be; the others are any text."""
_NUMBER = re.compile(r"\d{1,6}", re.ASCII)


def fault_of(name: str, text: str) -> str:
    """Return what is wrong with a value, from a key or a group; empty if nothing is."""
    try:
        parsed(name, text)
    except (ValueError, InputError):
        return f"{name} cannot be {text[:50]!r}: give {_ALLOWED[name]}"
    return ""


def parsed(name: str, text: str) -> Any:
    """Return a value: a number for repeats, sizes and depths, a Pattern, or text.

    Raises:
        ValueError, InputError: it is not one.
    """
    match name:
        case "repeat" | "iodepth":
            if not _NUMBER.fullmatch(text) or int(text) < (name == "iodepth"):
                raise ValueError(text)
            return int(text)
        case "pattern":
            return Pattern(text)
        case "size" | "align":
            nbytes = parse_nbytes(text)
            if nbytes < LBN_NBYTES or nbytes % LBN_NBYTES or (name == "align" and nbytes & (nbytes - 1)):
                raise ValueError(text)
            return nbytes
        case "sync":
            if text and not _SYNC.fullmatch(text):
                raise ValueError(text)
    return text


_KIND = re.compile(
    r"\d+(\.\d+)?[kmg]?i?b?|(rand)?(read|write|rw|readwrite)[_-]?\d*|seq|rand|run-\d+|json|results|id-[0-9a-f]{8}"
    r"|(op_size|iodepth|numjobs|concurrent_procs|concurrent_ops|osd_ra|client_ra|raw_ra)-\d+",
    re.IGNORECASE,
)
"""Names of folders that say how something was measured, instead of on what."""
_CBT_ITERATION = re.compile(r"\d{8}")
_CBT_ID = re.compile(r"id-[0-9a-f]{8}")
_CBT_OUTPUT = re.compile(r"(?:json_)?output\.(?P<number>\d+)(?:\.(?P<host>.+))?")
_NUMBERED = re.compile(r"(?P<word>op_size|iodepth|concurrent_ops)-0*(?P<n>\d+)")
_WORDS = re.compile(r"[^A-Za-z0-9]+")
_PATTERNS = {**{pattern.value: pattern for pattern in Pattern}, "seq": Pattern.READ, "rand": Pattern.RANDREAD}


@dataclass(frozen=True, slots=True)
class PathNames:
    """What names say.

    Attributes:
        configuration: never empty.
        client: empty if the names do not say.
        repeat: None likewise.
        hints: on the kind of access.
    """

    configuration: str
    client: str
    repeat: int | None
    hints: FileHints


def names_of_path(path: PurePath) -> PathNames:
    """Return what the names of a file and its folders say; ``path`` is absolute."""
    folders = path.parts[1:-1]
    is_cbt = [i for i, name in enumerate(folders) if i and _CBT_ID.fullmatch(name)]
    repeat = None
    if is_cbt and _CBT_ITERATION.fullmatch(folders[is_cbt[-1] - 1]):
        repeat = int(folders[is_cbt[-1] - 1])
    output = _CBT_OUTPUT.fullmatch(path.name)
    client = ""
    if output is not None:
        client = f"{output['host'] or 'client'}.{output['number']}"
    own = [name for name in folders if not _KIND.fullmatch(name)]
    return PathNames(own[-1] if own else path.stem, client, repeat, _hints(path, folders))


def duplicate_of(path: PurePath, siblings: Sequence[str]) -> str:
    """Return the file in the same folder that has the same run, as cbt's ``json_output.N``; empty if none has."""
    other = path.name.removeprefix("json_")
    return other if path.name.startswith("json_output.") and other in siblings else ""


def _hints(path: PurePath, folders: Sequence[str]) -> FileHints:
    """Return the kind of access that the file's name says, else that of the nearest folder."""
    pattern: Pattern | None = None
    for name in (path.stem, *reversed(folders)):
        found = {_PATTERNS[word] for word in _WORDS.split(name.lower()) if word in _PATTERNS}
        if len(found) == 1:
            pattern = found.pop()
            break
    numbers = {m["word"]: int(m["n"]) for name in folders if (m := _NUMBERED.fullmatch(name))}
    return FileHints(
        pattern,
        numbers.get("op_size", 0) or _size_of(path, folders),
        numbers.get("iodepth") or numbers.get("concurrent_ops") or 0,
    )


_SIZE = re.compile(r"\d+(\.\d+)?[kmg]i?b?", re.IGNORECASE)


def _size_of(path: PurePath, folders: Sequence[str]) -> int:
    for name in (path.stem, *reversed(folders)):
        for word in _WORDS.split(name):
            if _SIZE.fullmatch(word):
                try:
                    return parse_nbytes(word)
                except InputError:
                    continue
    return 0
