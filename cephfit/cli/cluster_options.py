"""The options of commands that may work on a Ceph cluster of other people (`--target ceph`)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

_OPTIONS = (
    click.option("--conf", type=click.Path(path_type=Path), metavar="FILE", help="The cluster's ceph.conf."),
    click.option("--id", "client_id", metavar="NAME", help="Ceph client: NAME for client.NAME.  [default: admin]"),
    click.option("--keyring", type=click.Path(path_type=Path), metavar="FILE", help="Keyring with its key."),
    click.option(
        "--admin",
        type=click.Choice(("rados", "ceph", "rest")),
        default="rados",
        show_default=True,
        help="How commands reach the cluster: librados, the `ceph` program, ceph-rest-api.",
    ),
    click.option("--rest-url", metavar="URL", help="Of ceph-rest-api, such as http://mon1:5000/api/v0.1/."),
    click.option("--only-pool", metavar="POOL", help="Touch nothing but images in this pool (and the lock)."),
    click.option(
        "--restarts",
        metavar="WHO",
        help="Who restarts OSDs: none, cephadm, ssh, or a program's path.  [default: ssh with --ssh, else none]",
    ),
    click.option("--ssh", is_flag=True, help="The OSD hosts may be reached over SSH."),
    click.option("--ssh-user", metavar="USER", help="User there; root unless sudo needs no password."),
    click.option("--ssh-config", type=click.Path(path_type=Path), metavar="FILE", help="SSH configuration."),
    click.option(
        "--ssh-host",
        "ssh_hosts",
        multiple=True,
        metavar="NAME=HOST",
        help="Where SSH finds a host. Repeatable.",
    ),
    click.option("--crush-rule", metavar="RULE", help="Of pools that a configuration does not place."),
    click.option("--pg-num", type=click.IntRange(min=1), help="PGs of pools where a configuration says none."),
    click.option("--take-over", is_flag=True, help="Take the lock of a sweep whose end cannot be seen from here."),
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
        plain = ClusterOptions()
        names = [name for name in self.__slots__ if getattr(self, name) != getattr(plain, name)]
        spelled = {"client_id": "--id", "ssh_hosts": "--ssh-host"}
        return tuple(spelled.get(name, "--" + name.replace("_", "-")) for name in names)


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets them as one argument ``cluster``."""

    @wraps(function)
    def command(*args: Any, **kwargs: Any) -> Any:
        said = {name: kwargs.pop(name) for name in ClusterOptions.__slots__}
        return function(*args, **kwargs, cluster=ClusterOptions(**said))

    for option in reversed(_OPTIONS):
        command = option(command)
    return command
