"""What the lab's OpenStack says of itself."""

from dataclasses import dataclass

from cephfit.lab.daemons import DaemonState


@dataclass(frozen=True, slots=True)
class CloudStatus:
    """A lab's OpenStack as it is now.

    Attributes:
        ready: it was whole once.
        clouds_yaml: file for ``OS_CLIENT_CONFIG_FILE``.
        clouds: names in it for ``OS_CLOUD``: the administrator's, the ordinary project's.
        keystone: address of the identity API.
        guests_network: the flat network; this machine has its first address.
        volume_types: to the Ceph pool behind each.
        daemons: all of them, dead ones too; memory is the proportional set size, children included.
    """

    ready: bool
    clouds_yaml: str
    clouds: tuple[str, str]
    keystone: str
    guests_network: str
    volume_types: dict[str, str]
    daemons: tuple[DaemonState, ...]
