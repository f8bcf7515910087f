"""The options of commands that may work on a Ceph cluster of other people (`--target ceph`)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

_CONNECTION = (
    click.option(
        "--conf",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The cluster's ceph.conf.  [default: $CEPH_CONF, else /etc/ceph/ceph.conf]",
    ),
    click.option("--id", "client_id", metavar="NAME", help="Ceph user: NAME for client.NAME.  [default: admin]"),
    click.option(
        "--keyring", type=click.Path(path_type=Path), metavar="FILE", help="Keyring with that user's key."
    ),
    click.option(
        "--admin",
        type=click.Choice(("rados", "ceph", "rest")),
        default="rados",
        show_default=True,
        help="How to send commands to the cluster: librados, the `ceph` program, ceph-rest-api.",
    ),
    click.option(
        "--rest-url", metavar="URL", help="Address of ceph-rest-api, such as http://mon1:5000/api/v0.1/."
    ),
)
_POOL = (
    click.option(
        "--only-pool",
        metavar="POOL",
        help="Touch nothing but images in this pool (and cephfit's lock on the cluster).",
    ),
    click.option(
        "--restarts",
        metavar="WHO",
        help="How to restart OSDs: none, cephadm, ssh, or a program's path.  [default: ssh with --ssh, else none]",
    ),
)
_HOSTS = (
    click.option("--ssh", is_flag=True, help="Allow SSH to the OSD hosts."),
    click.option("--ssh-user", metavar="USER", help="SSH user: root, or one whose sudo needs no password."),
    click.option(
        "--ssh-config", type=click.Path(path_type=Path), metavar="FILE", help="SSH client configuration to use."
    ),
    click.option(
        "--ssh-host",
        "ssh_hosts",
        multiple=True,
        metavar="NAME=HOST",
        help="Address at which SSH reaches the host that Ceph calls NAME. Repeatable.",
    ),
)
_POOL_DEFAULTS = (
    click.option("--crush-rule", metavar="RULE", help="CRUSH rule for pools whose configuration names none."),
    click.option(
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
class ClusterOptions:
    """What a person said of a cluster on the command line; None and empty where nothing was said."""

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

    def given(self) -> tuple[str, ...]:
        """Options that were given, as they are typed."""
        return tuple(option for option, _ in self._given())

    def words(self) -> tuple[str, ...]:
        """The same with their values: the part of a command line that says all this again, but no password."""
        from cephfit.sweep.admin.rest_admin import shown

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
        names = [name for name in self.__slots__ if getattr(self, name) != getattr(plain, name)]
        spelled = {"client_id": "--id", "ssh_hosts": "--ssh-host"}
        return [(spelled.get(name, "--" + name.replace("_", "-")), getattr(self, name)) for name in names]


def _adding(*options: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds options; the command gets them as one argument ``cluster``."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(*args: Any, **kwargs: Any) -> Any:
            said = {name: kwargs.pop(name) for name in ClusterOptions.__slots__ if name in kwargs}
            return function(*args, **kwargs, cluster=ClusterOptions(**said))

        for option in reversed(options):
            command = option(command)
        return command

    return add


cluster_options = _adding(*_CONNECTION, *_POOL, *_HOSTS, *_POOL_DEFAULTS, *_LOCK)
"""For commands that bring a cluster into configurations, or back."""
connection_options = _adding(*_CONNECTION)
"""For commands that only ask a cluster."""
daemon_options = _adding(*_CONNECTION, *_HOSTS, *_LOCK)
"""For commands that change a cluster and neither measure on it nor restart anything."""
