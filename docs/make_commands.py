"""Write docs/commands.md: the help of every command, from the command line itself.

Run with: .venv/bin/python docs/make_commands.py
"""

from collections.abc import Iterator
from pathlib import Path

import click

from cephfit.cli.main import cephfit

DOCUMENT = Path(__file__).with_name("commands.md")
WIDTH = 100
INTRODUCTION = """# All commands and options

The output of `--help` for every command. `docs/make_commands.py` writes this file; do not edit it.
"""


def commands(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[click.Context]:
    """A command, and all below it, in the order of its help."""
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    )
    yield context
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                yield from commands(found, child, context)


def document() -> str:
    """The text of docs/commands.md."""
    contexts = list(commands(cephfit, "cephfit"))
    contents = "\n".join(_line_of_contents(context) for context in contexts)
    sections = (
        f"## {context.command_path}\n\n```text\n{context.get_help().rstrip()}\n```\n" for context in contexts
    )
    return "\n".join([INTRODUCTION, f"{contents}\n", *sections])


def _line_of_contents(context: click.Context) -> str:
    depth = len(context.command_path.split()) - 1
    anchor = context.command_path.replace(" ", "-")
    summary = context.command.get_short_help_str(limit=200)
    return f"{'  ' * depth}- [{context.command_path}](#{anchor}): {summary}"


if __name__ == "__main__":
    DOCUMENT.write_text(document())
