"""The `cephfit` commands in code blocks and in backticks of documents, and why the command line refuses them."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from cephfit.cli.main import cephfit

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"(?:^|[;&|] *)(?:\$ )?(?:sudo )?(?:[\w./-]*/)?cephfit(?= |$)")
ARRAY = re.compile(r"^(\w+)=\((.*)\)$", re.MULTILINE)
"""A shell array, whose words other commands take as ``"${NAME[@]}"``."""
INLINE = re.compile(r"`cephfit ([^`]+)`")
NO_SHELL = ("python", "yaml", "json", "text")
PLACEHOLDER_ELLIPSIS = "..."


def commands_of(document: Path) -> list[tuple[str, ...]]:
    """Return the words of every `cephfit` command in a document's code blocks, without `cephfit`, in order."""
    text = document.read_text().replace("\\\n", " ")
    arrays = dict(ARRAY.findall(text))
    found: list[tuple[str, ...]] = []
    for line in _shell_lines(text):
        line = re.sub(r'"\$\{(\w+)\[@\]\}"', lambda match: arrays[match[1]], line)
        found += _calls(line)
    return found


def _shell_lines(text: str) -> Iterator[str]:
    """Yield the lines of code blocks that call `cephfit`: fenced ones, and those that are indented by four."""
    language: str | None = None
    for line in text.splitlines():
        if (fence := re.match(r" *```(\w*)", line)) is not None:
            language = fence[1] if language is None else None
            continue
        is_code = language is not None or line.startswith("    ")
        if is_code and language not in NO_SHELL and CALL.search(line.strip()):
            yield line.strip()


def _calls(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the commands of a line of shell that call `cephfit`, without redirections."""
    lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set(";&|<>"):
            if words[:1] == ["sudo"]:
                words = words[1:]
            if words and words[0].rpartition("/")[2] == "cephfit":
                yield tuple(words[1:])
            words = []
        else:
            words.append(word)


def inline_commands_of(document: Path) -> list[tuple[str, ...]]:
    """Return the words of the `cephfit` commands in backticks of a document's prose."""
    prose = FENCE.sub("", document.read_text())
    return [tuple(text.split()) for text in INLINE.findall(prose)]


def fault_of(words: Sequence[str], *, is_whole: bool = True) -> str:
    """Return why the command line refuses a command before it runs; empty if it does not.

    Args:
        words: the command, without `cephfit`.
        is_whole: whether it must have all arguments and values. Otherwise commands and options must exist.
    """
    command: click.Command = cephfit
    context: click.Context | None = None
    name = "cephfit"
    while True:
        context = click.Context(command, context, name, help_option_names=["-h", "--help"])
        if not is_whole and not isinstance(command, click.Group):
            return _unknown_options(command, context, words)
        try:
            values, words, _ = command.make_parser(context).parse_args(list(words))
        except click.UsageError as error:
            return error.format_message()
        if not isinstance(command, click.Group):
            return f"unexpected {' '.join(words)}" if words else _fault_of_values(command, context, values)
        if not words:
            return "" if not is_whole or _shows_help(command, values) else "no command is named"
        name, *words = words
        found = command.get_command(context, name)
        if found is None:
            return "" if not is_whole and name in ("COMMAND", PLACEHOLDER_ELLIPSIS) else f"no command {name}"
        command = found


def _shows_help(command: click.Command, values: dict[str, object]) -> bool:
    """Whether an option is given that ends the command before it runs, such as ``--help`` and ``--version``."""
    return any(p.is_eager and p.name in values for p in command.get_params(click.Context(command)))


def _unknown_options(command: click.Command, context: click.Context, words: Sequence[str]) -> str:
    known = {name for parameter in command.get_params(context) for name in parameter.opts}
    asked = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    return f"no option {', '.join(sorted(asked - known))}" if asked - known else ""


def _fault_of_values(command: click.Command, context: click.Context, values: dict[str, object]) -> str:
    """Return what is wrong with values, as far as it follows from their types, without files and environment."""
    if _shows_help(command, values):
        return ""
    for parameter in command.get_params(context):
        value = values.get(parameter.name or "")
        if value in (None, ()):
            if parameter.required:
                return f"{parameter.get_error_hint(context)} is missing"
        elif not isinstance(parameter.type, click.Path | click.File):
            try:
                parameter.type_cast_value(context, value)
            except click.UsageError as error:
                return error.format_message()
    return ""
