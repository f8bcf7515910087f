"""A connection to the cloud that a person named; a sentence where the libraries for it are missing."""

from typing import TYPE_CHECKING

from cephfit.cli.target_choice import require_openstack

if TYPE_CHECKING:
    from openstack.connection import Connection


def connected(name: str) -> "Connection":
    """A connection by name in clouds.yaml; an empty name takes ``OS_CLOUD``.

    Raises:
        HostError: the libraries that speak with OpenStack are not installed.
        CephfitError: see ``cephfit.sweep.cloud.connection.connect``.
    """
    require_openstack(f"cloud {name}" if name else "OS_CLOUD")
    from cephfit.sweep.cloud.connection import connect

    return connect(name)
