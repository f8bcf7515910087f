"""What all commands have: help with whole sentences in groups, and no option with two different values."""

import re
from typing import Any

import click


class SentenceGroup(click.Group):
    """Shows the whole first sentence of each command's help, on several lines if necessary; click truncates it."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, _first_sentence(found.help or "")) for name, found in commands if found is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    sentence, dot, _ = paragraph.partition(". ")
    return sentence + dot.strip()


_SECRETS = re.compile(r"(://[^:/@\s]*:)[^@\s]*(?=@)|(\w*password=)[^&\s]*", re.IGNORECASE)


def refuse_repeated_options(command: click.Command) -> click.Command:
    """Make a command and its subcommands refuse an option that is given with two different values.

    Options that collect values (``multiple=True``) and flags are not affected.
    """
    make_parser = command.make_parser

    def make_refusing_parser(ctx: click.Context) -> Any:
        parser = make_parser(ctx)
        options = {id(o): o for o in (*parser._short_opt.values(), *parser._long_opt.values())}
        for option in options.values():
            if option.action == "store":
                _refuse_second_value(option, ctx)
        return parser

    if make_parser.__name__ != make_refusing_parser.__name__:  # wrap an imported command only once
        command.make_parser = make_refusing_parser  # type: ignore[method-assign]
        if isinstance(command, click.Group):
            for below in command.commands.values():
                refuse_repeated_options(below)
    return command


def _refuse_second_value(option: Any, ctx: click.Context) -> None:
    """Wrap the method of click's parser that stores the value of one option; its class is private."""
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
    """Format a value for a message, without passwords."""
    if isinstance(value, tuple):
        return " ".join(map(_shown, value))
    text = value if isinstance(value, str) else str(value) if value is not None else "an empty value"
    return repr(_SECRETS.sub(lambda found: f"{found[1] or found[2]}***", text))
