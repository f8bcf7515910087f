"""Predictions from profiles and baselines, and their accuracy."""

from cephfit.core.errors import InputError
from cephfit.core.protocols import Predictor
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE
from cephfit.core.values.prediction import MODELS as _MODELS

MODELS: tuple[str, ...] = tuple(model.name for model in _MODELS)
"""The models by name; the first is the default."""


def predictor(
    model: str = MODELS[0], *, confidence: float = DEFAULT_CONFIDENCE, with_error: bool = False
) -> Predictor:
    """Return the predictor of a model.

    Args:
        model: one of ``MODELS``; ``cephfit.core.values.prediction`` describes each. ``waiting`` answers as
            ``time`` where a profile has no waiting times.
        confidence: level of the intervals, joint over all compared configurations.
        with_error: the intervals contain the model's own error, not only the scatter of the measurements: for
            statements on a real workload. Without it they are statements on the mix of cells, as in a race.

    Raises:
        InputError: there is no such model, or the confidence is not between 0 and 1.
    """
    if model not in MODELS:
        raise InputError(f"there is no model {model!r}", remedy=f"choose from: {', '.join(MODELS)}")
    if not 0 < confidence < 1:
        raise InputError(
            f"{confidence} is not a confidence level",
            remedy="give a number between 0 and 1, such as 0.95",
            where="confidence",
        )
    from cephfit.mapper.models.mix_predictor import MixPredictor
    from cephfit.mapper.models.model_error import ERRORS

    return MixPredictor(model, confidence, errors=ERRORS if with_error else {})
