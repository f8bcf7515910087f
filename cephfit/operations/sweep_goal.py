"""The goal of a sweep that races configurations or searches for one: a workload profile and a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cephfit.core.protocols import Predictor
    from cephfit.core.values.run import Run
    from cephfit.sweep.goal import Goal


def goal_of(profile_file: Path | None, model: str | None, *, resume: Run | None = None) -> Goal:
    """Return the goal that the arguments give; a continued run supplies what they leave open.

    Args:
        profile_file: of the workload; None: the profile with which the run began.
        model: that predicts the workload; None: the run's, else the first of ``mapper.MODELS``.
        resume: the run that is continued.

    Raises:
        InputError: the file cannot be read or is no profile.
    """
    from cephfit.core.profile_files import read_profile
    from cephfit.core.values.profile import Profile
    from cephfit.mapper import MODELS, predictor
    from cephfit.sweep.goal import GOAL, Goal

    begun: Mapping[str, Any] = (resume.facts.get(GOAL) if resume is not None else None) or {}
    name = model or str(begun.get("model", MODELS[0]))
    profile = None if profile_file is None else read_profile(profile_file)
    if profile is None and begun.get("profile") is not None:
        profile = Profile.from_json(begun["profile"], where="the run's profile")

    def predict_with(confidence: float) -> Predictor:
        return predictor(name, confidence=confidence)

    return Goal(predict_with, name, profile)
