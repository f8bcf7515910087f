"""Predictions from profiles and baselines, and their accuracy."""

from cephfit.core.errors import InputError
from cephfit.core.protocols import Predictor
from cephfit.core.values.prediction_model import DEFAULT_CONFIDENCE
from cephfit.core.values.prediction_model import MODELS as _MODELS

MODELS: tuple[str, ...] = tuple(model.name for model in _MODELS)
"""The models by name; the first is the default."""


def predictor(model: str = MODELS[0], *, confidence: float = DEFAULT_CONFIDENCE) -> Predictor:
    """Return the predictor of a model.

    Args:
        model: one of ``MODELS``; ``cephfit.core.values.prediction_model`` describes each.
        confidence: level of the intervals, joint over all compared configurations.

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
    from cephfit.mapper.mix_predictor import MixPredictor

    return MixPredictor(model, confidence)
