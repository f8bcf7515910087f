"""How a workload is predicted: the options of all commands that do it."""

import click

from cephfit.cli.numbers import Finite
from cephfit.mapper import MODELS

_MODEL = click.Choice(MODELS)
_CONFIDENCE = Finite(0.5, 0.9999)
_AS_MAPPED = "  [default: as `cephfit map` kept it, else {}]"

model_option = click.option(
    "--model", type=_MODEL, default=MODELS[0], show_default=True, help="How: service time, or Meyer's formula."
)

confidence_option = click.option(
    "--confidence", type=_CONFIDENCE, default=0.95, show_default=True, help="Joint level of all intervals."
)

mapped_model_option = click.option(
    "--model", type=_MODEL, help="How: service time, or Meyer's formula." + _AS_MAPPED.format(MODELS[0])
)

mapped_confidence_option = click.option(
    "--confidence", type=_CONFIDENCE, help="Joint level of all intervals." + _AS_MAPPED.format(0.95)
)
