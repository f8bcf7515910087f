"""How a workload is predicted: the options of all commands that do it."""

import click

from cephfit.cli.numbers import Finite
from cephfit.mapper import MODELS
from cephfit.prediction_model import DEFAULT_CONFIDENCE

_MODEL = click.Choice(MODELS)
_CONFIDENCE = Finite(0.5, 0.9999)
_AS_MAPPED = "  [default: as stored by `cephfit map`, else {}]"
_CONFIDENCE_HELP = "Joint confidence level of all intervals."

MODEL_HELP = "Prediction model: service time, or one of Meyer's formulas."

model_option = click.option("--model", type=_MODEL, default=MODELS[0], show_default=True, help=MODEL_HELP)

confidence_option = click.option(
    "--confidence", type=_CONFIDENCE, default=DEFAULT_CONFIDENCE, show_default=True, help=_CONFIDENCE_HELP
)

mapped_model_option = click.option("--model", type=_MODEL, help=MODEL_HELP + _AS_MAPPED.format(MODELS[0]))

mapped_confidence_option = click.option(
    "--confidence", type=_CONFIDENCE, help=_CONFIDENCE_HELP + _AS_MAPPED.format(DEFAULT_CONFIDENCE)
)
