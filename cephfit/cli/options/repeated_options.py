"""Options that take one value: a second, different one is an error, where click would drop the first."""

import re
from typing import Any

import click

_SECRETS = re.compile(r"(://[^:/@\s]*:)[^@\s]*(?=@)|(\w*password=)[^&\s]*", re.IGNORECASE)


def refuse_repeated_options(command: click.Command) -> click.Command:
    """Have a command and all commands below it refuse an option that is given with two different values.

    Options that collect values (``multiple=True``) and flags are as they were.
    """
    make_parser = command.make_parser

    def make_refusing_parser(ctx: click.Context) -> Any:
        parser = make_parser(ctx)
        options = {id(o): o for o in (*parser._short_opt.values(), *parser._long_opt.values())}
        for option in options.values():
            if option.action == "store":
                _refuse_second_value(option, ctx)
        return parser

    if make_parser.__name__ != make_refusing_parser.__name__:  # a command that is imported once is asked for often
        command.make_parser = make_refusing_parser  # type: ignore[method-assign]
        if isinstance(command, click.Group):
            for below in command.commands.values():
                refuse_repeated_options(below)
    return command


def _refuse_second_value(option: Any, ctx: click.Context) -> None:
    """Wrap how click's parser keeps the value of one option; ``option`` is of a class of its that has no name."""
    keep = option.process
    given: list[Any] = []

    def process(value: Any, state: Any) -> None:
        if given and given[0] != value:
            name = max((*option._short_opts, *option._long_opts), key=len)
            raise click.UsageError(
                f"{name} is given twice, as {_shown(given[0])} and as {_shown(value)}: give it once", ctx=ctx
            )
        given.append(value)
        keep(value, state)

    option.process = process


def _shown(value: Any) -> str:
    """A value as it was given; a password in it is not repeated."""
    if isinstance(value, tuple):
        return " ".join(map(_shown, value))
    text = value if isinstance(value, str) else str(value) if value is not None else "an empty value"
    return repr(_SECRETS.sub(lambda found: f"{found[1] or found[2]}***", text))
