"""Options of commands that can use an existing Ceph cluster (`--target ceph`)."""

import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cephfit.cli.options.config_file import ADMINS, Entry, config_file
from cephfit.core.errors import InputError
from cephfit.operations.cluster_options import ClusterOptions, Presets, is_existing_cluster

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
