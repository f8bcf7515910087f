"""Profiles x baselines to predictions, and how good they were."""

from cephfit.errors import InputError
from cephfit.protocols import Predictor

MODELS: tuple[str, ...] = ("time", "meyer", "meyer-random", "meyer-sequential")
"""The models by name; the first is the default."""


def predictor(model: str = MODELS[0], *, confidence: float = 0.95) -> Predictor:
    """The predictor called ``model``.

    Args:
        model: one of ``MODELS``: ``time`` adds the mix up as time; ``meyer`` is Formula 2.1 of the thesis, which
            adds relative rates; ``meyer-random`` and ``meyer-sequential`` are its readings in which all accesses
            are of the one kind.
        confidence: level of the intervals, jointly over all configurations compared.

    Raises:
        InputError: there is no such model, or the confidence is not between 0 and 1.
    """
    if model not in MODELS:
        raise InputError(f"there is no model {model!r}", remedy=f"the models are {', '.join(MODELS)}")
    if not 0 < confidence < 1:
        raise InputError(
            f"{confidence} is no confidence",
            remedy="give a number between 0 and 1, such as 0.95",
            where="confidence",
        )
    from cephfit.mapper.mix_predictor import MixPredictor

    return MixPredictor(model, confidence)
