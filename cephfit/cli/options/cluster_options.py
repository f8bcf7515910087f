"""The options of commands that may work on a Ceph cluster of other people (`--target ceph`)."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cephfit.cli.options.config_file import ADMINS, Entry, config_file
from cephfit.core.errors import InputError

_ONLY_POOL = "CEPHFIT_ONLY_POOL"


def _option(name: str, *others: str, **attributes: Any) -> Callable[..., Any]:
    """An option that the environment may give, too: ``--ssh-user`` as ``CEPHFIT_SSH_USER``."""
    variable = f"CEPHFIT_{name.removeprefix('--').upper().replace('-', '_')}"
    return click.option(name, *others, envvar=variable, show_envvar=True, **attributes)


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
        help="Touch nothing but images in this pool (and cephfit's lock on the cluster).",
    ),
    _option(
        "--restarts",
        metavar="WHO",
        help="How to restart OSDs: none, cephadm, ssh, or a program's path.  [default: ssh with --ssh, else none]",
    ),
)
_HOSTS = (
    _option("--ssh", is_flag=True, help="Allow SSH to the OSD hosts."),
    _option("--ssh-user", metavar="USER", help="SSH user: root, or one whose sudo needs no password."),
    _option(
        "--ssh-config", type=click.Path(path_type=Path), metavar="FILE", help="SSH client configuration to use."
    ),
    _option(
        "--ssh-host",
        "ssh_hosts",
        multiple=True,
        metavar="NAME=HOST",
        help="Address at which SSH reaches the host that Ceph calls NAME. Repeatable.",
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
        help="Take over the lock of another sweep if cephfit cannot tell whether that has ended.",
    ),
)


@dataclass(frozen=True, slots=True)
class Presets:
    """Values that no command line gives: fields of ``ClusterOptions`` to values.

    Attributes:
        environment: of ``CEPHFIT_*`` variables; these go before the others.
        targets: the configuration file's for one target, by its name up to the first comma.
        everywhere: the configuration file's for every cluster.
    """

    environment: Mapping[str, Any]
    targets: Mapping[str, Mapping[str, Any]]
    everywhere: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What a person said of a cluster on the command line; None and empty where nothing was said.

    ``presets`` is what the environment and the configuration file say besides: it concerns only targets that are
    clusters of other people (``for_target``), so that a simulation or a lab works with such a file, too.
    """

    conf: Path | None = None
    client_id: str | None = None
    keyring: Path | None = None
    admin: str = "rados"
    rest_url: str | None = None
    only_pool: str | None = None
    restarts: str | None = None
    ssh: bool = False
    ssh_user: str | None = None
    ssh_config: Path | None = None
    ssh_hosts: tuple[str, ...] = ()
    crush_rule: str | None = None
    pg_num: int | None = None
    take_over: bool = False
    presets: Presets | None = None

    def for_target(self, text: str) -> "ClusterOptions":
        """What holds for one target: the command line before the environment, and that before the file.

        Args:
            text: of the target. Presets do not concern one that cephfit made.
        """
        from cephfit.cli.options.target_choice import is_foreign

        return self.merged(text) if is_foreign(text) else replace(self, presets=None)

    def merged(self, text: str) -> "ClusterOptions":
        """The same for a target that presets concern; an empty text is no target's."""
        if self.presets is None:
            return self
        own = self.presets.targets.get(text.partition(",")[0], {})
        values = {**self.presets.everywhere, **own, **self.presets.environment}
        if self.only_pool:  # given on the command line, which allows none of these
            values = {name: v for name, v in values.items() if name not in ("restarts", "crush_rule", "pg_num")}
        return replace(self, presets=None, **values)

    def given(self) -> tuple[str, ...]:
        """Options that were given, as they are typed."""
        return tuple(option for option, _ in self._given())

    def words(self) -> tuple[str, ...]:
        """The same with their values: the part of a command line that says all this again, but no password."""
        from cephfit.ceph.admin.rest_admin import shown

        words: list[str] = []
        for option, value in self._given():
            if value is True:
                words.append(option)
            else:
                for one in value if isinstance(value, tuple) else (value,):
                    words += [option, shown(one) if option == "--rest-url" else str(one)]
        return tuple(words)

    def _given(self) -> list[tuple[str, Any]]:
        plain = ClusterOptions()
        fields = [name for name in self.__slots__ if name != "presets"]
        names = [name for name in fields if getattr(self, name) != getattr(plain, name)]
        spelled = {"client_id": "--id", "ssh_hosts": "--ssh-host"}
        return [(spelled.get(name, "--" + name.replace("_", "-")), getattr(self, name)) for name in names]


def _adding(*options: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds options; the command gets them as one argument ``cluster``."""

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
    """The options of a command, those of the command line apart from what the environment and the file say.

    Raises:
        InputError: the file or the environment keeps to one pool, and the command cannot.
    """
    from cephfit.cli.options.target_choice import is_foreign

    context = click.get_current_context()
    sources = {name: context.get_parameter_source(name) for name in given}
    said = {name: value for name, value in given.items() if sources[name] is ParameterSource.COMMANDLINE}
    environment = {name: value for name, value in given.items() if sources[name] is ParameterSource.ENVIRONMENT}
    config = config_file()

    def open_to(entries: Mapping[str, Entry]) -> dict[str, Any]:
        return {name: entry.value for name, entry in entries.items() if name in given and name not in said}

    if "take_over" in given and "only_pool" not in given and target_text and is_foreign(target_text):
        limit = config.of_target(target_text).get("only_pool")
        if os.environ.get(_ONLY_POOL) or limit is not None:
            raise InputError(
                "only-pool allows nothing but images in one pool, and this command changes pools",
                where=f"${_ONLY_POOL}" if limit is None else limit.where,
                remedy="take it out of there, or use another file: cephfit --config FILE",
            )
    targets = {name: open_to(section) for name, section in config.targets.items()}
    return ClusterOptions(**said, presets=Presets(environment, targets, open_to(config.everywhere)))


cluster_options = _adding(*_CONNECTION, *_POOL, *_HOSTS, *_POOL_DEFAULTS, *_LOCK)
"""For commands that bring a cluster into configurations, or back."""
connection_options = _adding(*_CONNECTION)
"""For commands that only ask a cluster."""
daemon_options = _adding(*_CONNECTION, *_HOSTS, *_LOCK)
"""For commands that change a cluster and neither measure on it nor restart anything."""
