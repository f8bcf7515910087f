"""Options that several commands share, each declared once."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cephfit.cli.options.completers import measured_rates, runs, stores, sweep_files, targets
from cephfit.cli.options.config_file import DEFAULT_STORE, configured_store
from cephfit.core.values.prediction_model import DEFAULT_CONFIDENCE
from cephfit.mapper import MODELS
from cephfit.operations.target_choice import require_openstack

if TYPE_CHECKING:
    from openstack.connection import Connection


class Finite(click.FloatRange):
    """A finite number in a range; click's own ranges accept `nan`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number in the range {self._describe_range()}.", param, ctx)
        return number


_MODEL = click.Choice(MODELS)
_CONFIDENCE = Finite(0.5, 0.9999)
_AS_MAPPED = "  [default: as stored by `cephfit map`, else {}]"
_CONFIDENCE_HELP = "Joint confidence level of all intervals."

MODEL_HELP = "Prediction model: by waiting times, by service time, or one of Meyer's formulas."

model_option = click.option("--model", type=_MODEL, default=MODELS[0], show_default=True, help=MODEL_HELP)

confidence_option = click.option(
    "--confidence", type=_CONFIDENCE, default=DEFAULT_CONFIDENCE, show_default=True, help=_CONFIDENCE_HELP
)

mapped_model_option = click.option("--model", type=_MODEL, help=MODEL_HELP + _AS_MAPPED.format(MODELS[0]))

mapped_confidence_option = click.option(
    "--confidence", type=_CONFIDENCE, help=_CONFIDENCE_HELP + _AS_MAPPED.format(DEFAULT_CONFIDENCE)
)


def connected(name: str) -> Connection:
    """Connect to a cloud by its name in clouds.yaml; an empty name selects ``OS_CLOUD``.

    Raises:
        HostError: the OpenStack libraries are not installed.
        CephfitError: see ``cephfit.cloud.cloud_connection.connect``.
    """
    require_openstack(f"cloud {name}" if name else "OS_CLOUD")
    from cephfit.cloud.cloud_connection import connect

    return connect(name)


_Command = TypeVar("_Command", bound=Callable[..., Any])

store_option = click.option(
    "--store",
    default=configured_store,
    show_default=False,
    envvar="CEPHFIT_STORE",
    show_envvar=True,
    metavar="STORE",
    shell_complete=stores,
    help=f"Results store: an SQLite file or an SQLAlchemy URL.  [default: {DEFAULT_STORE}]",
)

run_option = click.option(
    "--run", "run_id", metavar="RUN", shell_complete=runs, help="Which run to use.  [default: the newest]"
)

sweep_option = click.option(
    "--sweep",
    "sweep_text",
    required=True,
    metavar="FILE",
    shell_complete=sweep_files,
    help="Path of the sweep file, or name of a bundled one.",
)

run_of_sweep_option = click.option(
    "--run",
    "run_id",
    metavar="RUN",
    shell_complete=runs,
    help="Which run to use.  [default: the newest of this sweep]",
)

runs_option = click.option(
    "--run",
    "run_ids",
    multiple=True,
    metavar="RUN",
    shell_complete=runs,
    help="Which run to use.  [default: the newest]",
)
"""Repeatable; the command gets ``run_ids``."""

baselines_option = click.option(
    "--baselines",
    "location",
    required=True,
    metavar="STORE|CSV",
    shell_complete=measured_rates,
    help="The measured rates: a store written by `cephfit sweep run`, or a CSV file.",
)


def profiles_option(what: str) -> Callable[[_Command], _Command]:
    """Adds a repeatable ``--profile`` (argument ``profile_files``); ``what``: its help."""
    return click.option(
        "--profile",
        "profile_files",
        multiple=True,
        metavar="PROFILE",
        type=click.Path(path_type=Path),
        help=what,
    )


_LOAD_HELP = "Which load of the sweep file to use.  [default: the measurement's own]"

load_option = click.option("--load", default="", metavar="LOAD", help=_LOAD_HELP)

any_load_option = click.option("--load", metavar="LOAD", help=_LOAD_HELP)
"""None if not given, for commands that can use all loads."""

predicted_clients_option = click.option(
    "--clients",
    type=click.IntRange(min=1),
    metavar="N",
    help="Predict for N clients at once: from a load with N clients, else by a scaling law.  "
    "[default: as many as the load has]",
)

clients_option = click.option(
    "--clients",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run the workload on N clients at once, each on its own volume or guest.  [default: one]",
)

keep_option = click.option(
    "--keep",
    is_flag=True,
    help="Keep the volumes and the last configuration on the target at the end.",
)

scale_option = click.option(
    "--scale", type=click.IntRange(min=1), help="pgbench scale factor (about 15 MiB of database per unit)."
)


def target_option(*forms: str, what: str = "Target cluster", more: str = "") -> Callable[[_Command], _Command]:
    """Adds a required ``--target`` (argument ``target_text``).

    Args:
        forms: accepted forms, such as ``lab:NAME``.
        what: first words of the help.
        more: last words of the help.
    """
    choices = ", ".join(f"`{form}`" for form in forms)
    return click.option(
        "--target",
        "target_text",
        required=True,
        metavar="TARGET",
        shell_complete=targets,
        help=f"{what}: {choices}.{more}",
    )


def apply_option(where: str = "to a cluster that cephfit did not create") -> Callable[[_Command], _Command]:
    """Adds ``--apply`` to a command that without it only shows its changes.

    Args:
        where: what is changed; empty if ``--apply`` is always required.
    """
    changes = f"Apply the changes {where}".rstrip()
    return click.option("--apply", is_flag=True, help=f"{changes}.  [default: only show them]")


needed_apply_option = click.option(
    "--apply", is_flag=True, help="Allow changes to a cluster that cephfit did not create; required there."
)
"""For commands that refuse such a cluster without it."""


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
