"""Options that several commands share, each declared once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from cephfit.cli.options.completers import measured_rates, runs, stores, sweep_files, targets
from cephfit.cli.options.config_file import ADMINS, DEFAULT_STORE, Entry, config_file, configured_store
from cephfit.core.errors import InputError
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE
from cephfit.mapper import MODELS
from cephfit.operations.measuring.cluster_options import ClusterOptions, Presets, is_existing_cluster
from cephfit.operations.measuring.target_choice import require_openstack

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

lab_release_option = click.option(
    "--release",
    type=click.Choice(("pacific", "reef", "tentacle")),
    help="Ceph release of the daemons; another than the machine's is installed in the cache folder first.  "
    "[default: the machine's]",
)

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


_ONLY_POOL = "CEPHFIT_ONLY_POOL"


class _OptionOrVariable(click.Option):
    """An option whose errors name its environment variable too, also with click 8.1."""

    def get_error_hint(self, ctx: Any) -> str:
        hint = super().get_error_hint(ctx)
        return hint if str(self.envvar) in hint else f"{hint} (env var: '{self.envvar}')"


def _option(name: str, *others: str, **attributes: Any) -> Callable[..., Any]:
    """Declare an option that can also come from the environment: ``--ssh-user`` as ``CEPHFIT_SSH_USER``."""
    variable = f"CEPHFIT_{name.removeprefix('--').upper().replace('-', '_')}"
    return click.option(name, *others, cls=_OptionOrVariable, envvar=variable, show_envvar=True, **attributes)


_CONNECTION = (
    _option(
        "--conf",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The cluster's ceph.conf.  [default: $CEPH_CONF, else /etc/ceph/ceph.conf]",
    ),
    _option("--id", "client_id", metavar="NAME", help="Ceph user: NAME for client.NAME.  [default: admin]"),
    _option("--keyring", type=click.Path(path_type=Path), metavar="FILE", help="Keyring with that user's key."),
    _option(
        "--admin",
        type=click.Choice(ADMINS),
        default="rados",
        show_default=True,
        help="How to send commands to the cluster: librados, the `ceph` program, ceph-rest-api.",
    ),
    _option("--rest-url", metavar="URL", help="Address of ceph-rest-api, such as http://mon1:5000/api/v0.1/."),
)
_POOL = (
    _option(
        "--only-pool",
        metavar="POOL",
        help="Use only images in this pool (and cephfit's lock on the cluster).",
    ),
    _option(
        "--restarts",
        metavar="WHO",
        help="How to restart OSDs: none, cephadm, ssh, or a program's path.  [default: ssh with --ssh, else none]",
    ),
)
_HOSTS = (
    _option("--ssh", is_flag=True, help="Allow SSH to the OSD hosts."),
    _option("--ssh-user", metavar="USER", help="SSH user: root, or a user with sudo without a password."),
    _option(
        "--ssh-config", type=click.Path(path_type=Path), metavar="FILE", help="SSH client configuration to use."
    ),
    _option(
        "--ssh-host",
        "ssh_hosts",
        multiple=True,
        metavar="NAME=HOST",
        help="SSH address of the host with the name NAME in Ceph. Repeatable.",
    ),
)
_POOL_DEFAULTS = (
    _option("--crush-rule", metavar="RULE", help="CRUSH rule for pools whose configuration names none."),
    _option(
        "--pg-num", type=click.IntRange(min=1), help="Number of PGs for pools whose configuration gives none."
    ),
)
_LOCK = (
    click.option(
        "--take-over",
        is_flag=True,
        help="Take over the lock of another sweep if cephfit cannot determine whether that has ended.",
    ),
)


def _adding(*options: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds options, which the command receives as one argument ``cluster``."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(*args: Any, **kwargs: Any) -> Any:
            given = {name: kwargs.pop(name) for name in ClusterOptions.__slots__ if name in kwargs}
            return function(*args, **kwargs, cluster=_with_presets(given, kwargs.get("target_text")))

        for option in reversed(options):
            command = option(command)
        return command

    return add


def _with_presets(given: dict[str, Any], target_text: str | None) -> ClusterOptions:
    """Return the options of a command, with those of the environment and the file as presets.

    Raises:
        InputError: the file or the environment requires one pool (only-pool), which the command does not support.
    """
    context = click.get_current_context()
    sources = {name: context.get_parameter_source(name) for name in given}
    typed = {name: value for name, value in given.items() if sources[name] is ParameterSource.COMMANDLINE}
    environment = {name: value for name, value in given.items() if sources[name] is ParameterSource.ENVIRONMENT}
    config = config_file()

    def open_to(entries: Mapping[str, Entry]) -> dict[str, Any]:
        return {name: entry.value for name, entry in entries.items() if name in given and name not in typed}

    if "take_over" in given and "only_pool" not in given and target_text and is_existing_cluster(target_text):
        limit = config.of_target(target_text).get("only_pool")
        if os.environ.get(_ONLY_POOL) or limit is not None:
            raise InputError(
                "only-pool allows nothing but images in one pool, and this command changes pools",
                where=f"${_ONLY_POOL}" if limit is None else limit.where,
                remedy="remove it there, or use another file: cephfit --config FILE",
            )
    targets = {name: open_to(section) for name, section in config.targets.items()}
    return ClusterOptions(**typed, presets=Presets(environment, targets, open_to(config.everywhere)))


cluster_options = _adding(*_CONNECTION, *_POOL, *_HOSTS, *_POOL_DEFAULTS, *_LOCK)
"""For commands that apply configurations to a cluster, or undo them."""
connection_options = _adding(*_CONNECTION)
"""For commands that only query a cluster."""
daemon_options = _adding(*_CONNECTION, *_HOSTS, *_LOCK)
"""For commands that change a cluster without measuring or restarting."""
