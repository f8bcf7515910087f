"""What a sweep is after: `--profile` and `--model`, for sweeps that race configurations or search for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from cephfit.core.protocols import Predictor
    from cephfit.core.values.run import Run
    from cephfit.sweep.goal import Goal

_Command = TypeVar("_Command", bound=Callable[..., Any])


def goal_options(command: _Command) -> _Command:
    """Adds ``--profile`` and ``--model`` (arguments ``profile_file`` and ``model``) of a sweep's goal."""
    return profile_options(
        "Profile of the workload that configurations race for, if the sweep says so (`cephfit trace profile`)."
    )(command)


def profile_options(what_for: str) -> Callable[[_Command], _Command]:
    """Adds ``--profile`` and ``--model`` to a command that uses them for something of its own.

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


def goal_of(profile_file: Path | None, model: str | None, *, resume: Run | None = None) -> Goal:
    """What the options say; what they leave open is as the run began that is gone on with.

    Raises:
        InputError: the file cannot be read or is no profile.
    """
    from cephfit.core.profile_files import read_profile
    from cephfit.core.values.profile import Profile
    from cephfit.mapper import MODELS, predictor
    from cephfit.sweep.goal import GOAL, Goal

    begun: Mapping[str, Any] = (resume.facts.get(GOAL) if resume is not None else None) or {}
    model_predictor = model or str(begun.get("model", MODELS[0]))
    profile = None if profile_file is None else read_profile(profile_file)
    if profile is None and begun.get("profile") is not None:
        profile = Profile.from_json(begun["profile"], where="the run's profile")

    def predict_with(confidence: float) -> Predictor:
        return predictor(model_predictor, confidence=confidence)

    return Goal(predict_with, model_predictor, profile)
