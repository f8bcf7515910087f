"""Read YAML into values that keep their line number, so that errors can name it.

Errors name ``file:line``, the wrong word and the nearest correct one. Duplicate keys in a mapping are refused;
YAML itself would silently keep the last one.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml

from cephfit.core.errors import InputError
from cephfit.core.units import parse_nbytes
from cephfit.core.values.configuration import Value

MOST = 2**63 - 1
"""The largest whole number that a results store can hold."""
_MOST_VALUES = 1_000_000
"""Limit per file. Nested aliases can expand a few lines beyond the memory of the machine."""


def nearest(word: str, right: Iterable[str]) -> str:
    """Return a remedy for a wrong word: the nearest correct one, or all of them if none is similar."""
    words = [str(w) for w in right]
    lowered = {w.lower(): w for w in words}
    close = difflib.get_close_matches(word.lower(), list(lowered), n=1, cutoff=0.6)
    if close:
        return f"did you mean {lowered[close[0]]!r}?"
    return f"choose from: {', '.join(words)}"


@dataclass(frozen=True, slots=True)
class Located:
    """A YAML value and its place in the file.

    Attributes:
        value: a scalar, a list of Located, or a dict of str to Located.
        file: name of the file, for messages.
        line: counts from 1.
        what: name of the value in messages, such as ``measurement.clients``.
        key_line: line of each key of a mapping.
    """

    value: Any
    file: str
    line: int
    what: str
    key_line: Mapping[str, int]

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def refuse(self, wrong: str, remedy: str = "") -> NoReturn:
        """Refuse this value.

        Raises:
            InputError: always, naming this place.
        """
        raise InputError(wrong, where=self.where, remedy=remedy)

    def mapping(self, allowed: Iterable[str] | None = None, required: Iterable[str] = ()) -> "dict[str, Located]":
        """Return the entries of a mapping; an empty value counts as an empty mapping.

        Raises:
            InputError: not a mapping, a key that is not among ``allowed``, or one of ``required`` is missing.
        """
        if self.value is None:
            entries: dict[str, Located] = {}
        elif isinstance(self.value, dict):
            entries = self.value
        else:
            self.refuse(f"{self.what} must be a mapping (key: value), not {_kind(self.value)}")
        if allowed is not None:
            right = tuple(allowed)
            for key in entries:
                if key not in right:
                    raise InputError(
                        f"unknown word {key!r} in {self.what}",
                        where=f"{self.file}:{self.key_line.get(key, self.line)}",
                        remedy=nearest(key, right),
                    )
        for key in required:
            if key not in entries:
                self.refuse(f"{self.what} lacks {key!r}", f"add a line `{key}: ...`")
        return entries

    def items(self) -> "list[Located]":
        """Return the values of a list.

        Raises:
            InputError: not a list.
        """
        if not isinstance(self.value, list):
            self.refuse(f"{self.what} must be a list, not {_kind(self.value)}", "write it like [a, b]")
        return list(self.value)

    def text(self) -> str:
        """Return the value as text.

        Raises:
            InputError: not a text.
        """
        if not isinstance(self.value, str):
            self.refuse(f"{self.what} must be text, not {_kind(self.value)}", "put it in quotes")
        return self.value

    def whole(self, *, least: int = 0, most: int = MOST) -> int:
        """Return the value as a whole number.

        Raises:
            InputError: not a whole number, less than ``least``, or more than ``most``.
        """
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            self.refuse(f"{self.what} must be a whole number, not {_kind(self.value)}")
        if self.value < least:
            self.refuse(f"{self.what} must be at least {least}, not {self.value}")
        if self.value > most:
            shown = str(self.value) if self.value <= MOST else "a larger number"
            self.refuse(f"{self.what} must be at most {most}, not {shown}")
        return self.value

    def seconds(self, *, positive: bool = False) -> float:
        """Return the value as a number of seconds.

        Raises:
            InputError: not a number of seconds.
        """
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self.refuse(f"{self.what} must be a number of seconds, not {_kind(self.value)}")
        number = float(self.value)
        if not 0 <= number < 1e7 or (positive and number == 0):
            self.refuse(
                f"{self.what} cannot be {self.value}", "write seconds as a plain number, such as 0.5 or 300"
            )
        return number

    def truth(self) -> bool:
        """Return the value as true or false.

        Raises:
            InputError: neither true nor false.
        """
        if not isinstance(self.value, bool):
            self.refuse(f"{self.what} must be true or false, not {_kind(self.value)}")
        return self.value

    def nbytes(self) -> int:
        """A size such as 512M.

        Raises:
            InputError: not a size.
        """
        if isinstance(self.value, bool) or not isinstance(self.value, int | str):
            self.refuse(f"{self.what} must be a size, not {_kind(self.value)}", "write it like 512M or 10G")
        return parse_nbytes(self.value, where=self.where)

    def word(self, right: Iterable[str]) -> str:
        """One of a few words.

        Raises:
            InputError: another word; names the nearest correct one.
        """
        words = tuple(right)
        given = str(self.value)
        if given not in words:
            self.refuse(f"{given!r} is not a {self.what}", nearest(given, words))
        return given

    def scalar(self) -> Value:
        """A setting's value: text, number or truth.

        Raises:
            InputError: something else.
        """
        if not isinstance(self.value, str | int | float | bool):
            self.refuse(f"{self.what} must be one value, not {_kind(self.value)}")
        return self.value


_MOST_SHOWN = 80
"""Characters of a wrong value in a message: a file that is not YAML may be one long text."""


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = f"{value!r}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but `on`, `off`, `yes` and `no` stay text: some Ceph options take them."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:timestamp",)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _first in "oOyYnN":
    _Loader.yaml_implicit_resolvers[_first] = [
        (tag, pattern)
        for tag, pattern in _Loader.yaml_implicit_resolvers.get(_first, [])
        if tag != "tag:yaml.org,2002:bool"
    ]


def read_yaml(text: str, *, file: str) -> Located:
    """Read one YAML document.

    Args:
        text: the document.
        file: its name, for messages.

    Raises:
        InputError: not YAML, empty, a duplicate key, or a key that is not text.
    """
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise InputError(
                "the file is empty", where=file, remedy="`cephfit sweep list` shows ready sweep files"
            )
        _count(node, file, {})
        return _locate(loader, node, file, "the file")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}" if mark else file
        raise InputError(
            f"not YAML: {error.problem or error.context}",
            where=where,
            remedy="look at this line and the one above: words of one level begin in one column, indented by "
            "spaces and never by tabs; every bracket and quotation mark is closed",
        ) from None
    except RecursionError:
        raise InputError(
            "lists or mappings are nested too deeply",
            where=file,
            remedy="close each bracket where it ends",
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"not YAML: {error}", where=file) from None
    finally:
        if loader is not None:
            loader.dispose()


def _count(node: yaml.Node, file: str, counted: dict[int, int]) -> int:
    """Return the number of values in a node; an aliased value counts each time.

    Args:
        node: of a document.
        file: its name, for messages.
        counted: the numbers of the nodes that were counted before, by their ids.

    Raises:
        InputError: they are more than ``_MOST_VALUES``.
    """
    if id(node) not in counted:
        counted[id(node)] = 0  # within itself: refused when the values are read
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.CollectionNode):
            parts = [part for _, part in node.value] if isinstance(node, yaml.MappingNode) else node.value
        counted[id(node)] = 1 + sum(_count(part, file, counted) for part in parts)
        if counted[id(node)] > _MOST_VALUES:
            _refuse_aliases(node, file)
    return counted[id(node)]


def _refuse_aliases(node: yaml.Node, file: str) -> NoReturn:
    raise InputError(
        "aliases (*) repeat this value without end",
        where=f"{file}:{node.start_mark.line + 1}",
        remedy="write out the values that the aliases name",
    )


def _locate(loader: _Loader, node: yaml.Node, file: str, what: str, within: tuple[yaml.Node, ...] = ()) -> Located:
    line = node.start_mark.line + 1
    if any(node is outer for outer in within):
        _refuse_aliases(node, file)
    within = (*within, node)
    value: Any
    key_line: dict[str, int] = {}
    if isinstance(node, yaml.MappingNode):
        value = {}
        for key_node, value_node in node.value:
            at = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise InputError("a key must be one word", where=f"{file}:{at}")
            key = str(key_node.value)
            if key in value:
                raise InputError(
                    f"{key!r} is given twice", where=f"{file}:{at}", remedy=f"the first is on line {key_line[key]}"
                )
            key_line[key] = at
            value[key] = _locate(loader, value_node, file, key if what == "the file" else f"{what}.{key}", within)
    elif isinstance(node, yaml.SequenceNode):
        value = [_locate(loader, item, file, what, within) for item in node.value]
    else:
        value = loader.construct_object(node, deep=True)
    return Located(value, file, line, what, key_line)
