"""How a workload is predicted: the options of all commands that do it."""

import click

from cephfit.mapper import MODELS

model_option = click.option(
    "--model",
    type=click.Choice(MODELS),
    default=MODELS[0],
    show_default=True,
    help="How: service time, or Meyer's formula.",
)

confidence_option = click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.9999),
    default=0.95,
    show_default=True,
    help="Joint level of all intervals.",
)
