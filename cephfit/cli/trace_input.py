"""Arguments that are a profile or a trace, told by their content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cephfit.profile import Profile
from cephfit.protocols import Progress

_Command = TypeVar("_Command", bound=Callable[..., Any])


def trace_options(command: _Command) -> _Command:
    """Adds ``--format``, ``--action`` and ``--describe``, which matter where the argument is a trace."""
    for option in (
        click.option(
            "--describe",
            type=click.Choice(["fast", "full"]),
            default="full",
            show_default=True,
            help="How much of a trace to describe; fast leaves out behaviour over time and place.",
        ),
        click.option(
            "--action", type=click.Choice(["Q", "D"]), default="Q", show_default=True, help="Of a trace."
        ),
        click.option("--format", "format_name", metavar="FORMAT", help="Of a trace [default: by content]."),
    ):
        command = option(command)
    return command


def profile_of_path(
    path: Path, *, format_name: str | None, action: str, describe: str, progress: Progress
) -> Profile:
    """A profile file's profile, or that of a trace.

    Raises:
        InputError: it is neither, or damaged.
    """
    from cephfit.traces import profile_files
    from cephfit.traces.block_layer import Action

    if format_name is None and _looks_like_a_profile(path):
        return Profile.loads(path.read_text(encoding="utf-8"), where=str(path))
    return profile_files(
        [path], format_name=format_name, action=Action(action), full=describe == "full", progress=progress
    )


def _looks_like_a_profile(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(4096)
    return head.lstrip().startswith(b"{") and b'"schema_version"' in head
