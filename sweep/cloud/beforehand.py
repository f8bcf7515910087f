"""What a cloud must have before anything is made in it: image, flavour, network, volume types, quota, room."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import ForbiddenException, HttpException

from cephfit.errors import ClusterError, InputError
from cephfit.sweep.cloud.choice import CloudChoice, require_whole
from cephfit.sweep.cloud.connection import persistently
from cephfit.sweep.cloud.volumes import require_types
from cephfit.sweep.yaml_lines import nearest

_UNLIMITED = -1
_HYPERVISORS_WITH_USE = "2.87"
"""The last version of Nova's API in which a hypervisor tells its processors and how many are promised."""


@dataclass(frozen=True, slots=True)
class Need:
    """What is about to be asked of a project.

    Attributes:
        what: for people: ``instances``, ``GiB of volumes`` ...
        more: so much more.
        used: so much is used already.
        limit: -1 for none.
    """

    what: str
    more: int
    used: int
    limit: int

    @property
    def sentence(self) -> str:
        """Why this is too much; empty if it is not."""
        if self.limit == _UNLIMITED or self.used + self.more <= self.limit:
            return ""
        return f"{self.more} more {self.what} are needed, {self.used} of {self.limit} are used"


def require(cloud: Connection, choice: CloudChoice, types: Sequence[str], *, n_more: int, gib: int) -> None:
    """Everything there for so many more clients, before the first of them is made.

    Args:
        cloud: connection.
        choice: what the clients are made of.
        types: volume types.
        n_more: clients that are not there yet.
        gib: size of each one's volume.

    Raises:
        InputError: something is not there, or was written wrongly.
        ClusterError: the project's quota or the hosts' processors are not enough.
    """
    require_whole(choice)
    require_image(cloud, choice.image)
    flavor = require_flavor(cloud, choice.flavor)
    if choice.network:
        require_network(cloud, choice.network)
    require_types(cloud, types)
    over = [need.sentence for need in needs(cloud, flavor, n_more=n_more, gib=gib) if need.sentence]
    if over:
        raise ClusterError(
            f"the project's quota is not enough: {'; '.join(over)}",
            where=f"cloud {cloud.name}",
            remedy="measure with fewer clients or smaller volumes, delete what is not needed (see `cephfit cloud "
            "list`), or have the quota raised",
        )
    if not choice.overcommit and (free := free_processors(cloud)) is not None:
        wanted = n_more * int(flavor.vcpus)
        if wanted > free:
            raise ClusterError(
                f"{n_more} more servers have {wanted} processors, the compute hosts have {free} that are not "
                "promised to others: guests would wait for each other",
                where=f"cloud {cloud.name}",
                remedy="measure with fewer clients, or add overcommit=yes to the target if that is meant",
            )


def require_image(cloud: Connection, name: str) -> Any:
    """The image.

    Raises:
        InputError: there is none of this name.
        ClusterError: it cannot be used now.
    """
    bring = "bring cephfit's own there: `cephfit image build DIR`, then `cephfit image upload DIR --cloud "
    image = _require(
        cloud,
        "image",
        lambda: cloud.image.find_image(name, ignore_missing=True),
        lambda: cloud.image.images(),
        name=name,
        may="see",
        remedy=f"{bring}{cloud.name}`",
    )
    if image.status != "active":
        raise ClusterError(f"image {name} is {image.status}, not active", where=f"cloud {cloud.name}")
    return image


def require_flavor(cloud: Connection, name: str) -> Any:
    """The flavour.

    Raises:
        InputError: there is none of this name.
    """
    return _require(
        cloud,
        "flavour",
        lambda: cloud.compute.find_flavor(name, ignore_missing=True),
        lambda: cloud.compute.flavors(),
        name=name,
    )


def require_network(cloud: Connection, name: str) -> Any:
    """The network.

    Raises:
        InputError: there is none of this name.
    """
    return _require(
        cloud,
        "network",
        lambda: cloud.network.find_network(name, ignore_missing=True),
        lambda: cloud.network.networks(),
        name=name,
    )


def _require(
    cloud: Connection,
    kind: str,
    find: Callable[[], Any],
    everything: Callable[[], Iterable[Any]],
    *,
    name: str,
    may: str = "use",
    remedy: str = "",
) -> Any:
    """What the cloud has of a kind by this name or id; otherwise InputError with the name that may be meant.

    The calls name the service themselves: the SDK asks Keystone where a service is when it is named first.
    """
    found = persistently(find, where=f"{kind}s")
    if found is None:
        hint = nearest(name, persistently(lambda: [one.name for one in everything()], where=f"{kind}s"))
        raise InputError(
            f"the cloud has no {kind} {name}, or this project may not {may} it",
            where=f"cloud {cloud.name}",
            remedy="; or ".join(filter(None, (hint, remedy))),
        )
    return found


def needs(cloud: Connection, flavor: Any, *, n_more: int, gib: int) -> Iterator[Need]:
    """What so many more clients ask of the project's quotas."""
    compute = persistently(lambda: cloud.compute.get_limits().absolute, where="quota of compute")
    yield _need("instances", n_more, compute.instances_used, compute.instances)
    yield _need("cores", n_more * flavor.vcpus, compute.total_cores_used, compute.total_cores)
    yield _need("MiB of memory", n_more * flavor.ram, compute.total_ram_used, compute.total_ram)
    storage = persistently(lambda: cloud.block_storage.get_limits().absolute, where="quota of volumes")
    yield _need("volumes", n_more, storage.total_volumes_used, storage.max_total_volumes)
    yield _need("GiB of volumes", n_more * gib, storage.total_gigabytes_used, storage.max_total_volume_gigabytes)


def free_processors(cloud: Connection) -> int | None:
    """Processors of the compute hosts that no server was promised; None where this user may not see them."""

    def ask() -> Mapping[str, Any] | None:
        answer = cloud.compute.get("/os-hypervisors/detail", microversion=_HYPERVISORS_WITH_USE)
        if answer.status_code in (401, 403, 404):
            return None
        if answer.status_code >= 400:
            raise HttpException(message=answer.text, response=answer)
        return dict(answer.json())

    try:
        found = persistently(ask, where="compute hosts")
    except ForbiddenException:
        return None
    if found is None:
        return None
    up = [host for host in found["hypervisors"] if host["state"] == "up" and host["status"] == "enabled"]
    return max(0, sum(int(host["vcpus"]) - int(host["vcpus_used"]) for host in up))


def _need(what: str, more: int, used: int | None, limit: int | None) -> Need:
    return Need(what, more, int(used or 0), _UNLIMITED if limit is None else int(limit))
