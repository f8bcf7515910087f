"""Options for the goal of a sweep: `--profile` and `--model`, for races and searches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def goal_options(command: _Command) -> _Command:
    """Adds ``--profile`` and ``--model`` (arguments ``profile_file`` and ``model``) of a sweep's goal."""
    return profile_options(
        "Profile of the workload that configurations race for, if the sweep declares it (`cephfit trace profile`)."
    )(command)


def profile_options(what_for: str) -> Callable[[_Command], _Command]:
    """Adds ``--profile`` and ``--model`` to a command with another use for them.

    Args:
        what_for: the help of ``--profile``.
    """
    from cephfit.cli.options.common_options import MODEL_HELP
    from cephfit.mapper import MODELS

    profile = click.option(
        "--profile",
        "profile_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=what_for,
    )
    model = click.option(
        "--model",
        type=click.Choice(MODELS),
        help=f"{MODEL_HELP}  [default: {MODELS[0]}]",
    )

    def with_both(command: _Command) -> _Command:
        return profile(model(command))

    return with_both
