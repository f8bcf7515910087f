"""The target's description of a cloud: which one, and the image, flavor and volumes of the clients."""

import hashlib
import ipaddress
import os
from dataclasses import dataclass, fields
from pathlib import Path

from platformdirs import user_state_path

from cephfit.core.errors import InputError
from cephfit.core.yaml_lines import nearest
from cephfit.measure.fio.fio_servers import DEFAULT_PORT

_RESULTS = ("server", "signal", "console")
_AFFINITIES = ("soft-anti-affinity", "anti-affinity", "soft-affinity", "affinity")


@dataclass(frozen=True, slots=True)
class CloudChoice:
    """A cloud and the clients to create in it.

    Attributes:
        cloud: name in clouds.yaml; empty uses ``OS_CLOUD``.
        image: of the guests, by name or id.
        flavor: of the guests.
        volume_type: of the default configuration's volumes.
        network: for access to guests; empty for guests without a network.
        zone: availability zone; empty leaves the choice to Nova.
        port: of fio's server in the guests.
        results: transport from guests with a network: ``server``, ``signal`` or ``console``; empty for the first
            of these that works.
        reached_from: addresses (CIDR) from which the guests' ports are open; empty for this machine's address.
        affinity: placement policy for the guests of a stack, by Nova's name.
        key_name: key pair for access to guests; empty for none.
        overcommit: whether guests may have more processors than the compute hosts have free, and volumes more
            data than their pools have capacity for. Quotas still apply.
        ceph: the cluster of the cloud's volumes, if it is to be configured, too: its name below /etc/ceph or the
            path of its ceph.conf; empty for a cloud alone.
        lab: likewise, where that cluster is a lab.
        settings: how options are delivered to that cluster's daemons; empty for the way of its release.
        osd_conf: the daemons' ceph.conf on their hosts, where options are written to it.
    """

    cloud: str = ""
    image: str = "cephfit-guest"
    flavor: str = ""
    volume_type: str = ""
    network: str = ""
    zone: str = ""
    port: int = DEFAULT_PORT
    results: str = ""
    reached_from: str = ""
    affinity: str = _AFFINITIES[0]
    key_name: str = ""
    overcommit: bool = False
    ceph: str = ""
    lab: str = ""
    settings: str = ""
    osd_conf: str = ""

    @property
    def delivery(self) -> str:
        """The delivery of options in the form of a Ceph target: ``settings=conf,osd_conf=/path``."""
        words = (("settings", self.settings), ("osd_conf", self.osd_conf))
        return ",".join(f"{key}={value}" for key, value in words if value)


def parse_choice(text: str) -> CloudChoice:
    """Parse ``openstack:CLOUD,image=NAME,flavor=NAME,volume_type=NAME,network=NAME``.

    The cloud and its comma may be omitted.

    Raises:
        InputError: names the word that is wrong.
    """
    cloud, *words = text.partition(":")[2].split(",")
    if "=" in cloud:
        cloud, words = "", [cloud, *words]
    known = [field.name for field in fields(CloudChoice) if field.name != "cloud"]
    given: dict[str, str] = {}
    for word in words:
        key, is_pair, value = word.partition("=")
        if not is_pair or not value:
            raise InputError(
                f"{word!r} is not NAME=VALUE",
                where=f"--target {text}",
                remedy=f"NAME is one of {', '.join(known)}",
            )
        if key not in known:
            raise InputError(
                f"unknown word {key!r} in the target", where=f"--target {text}", remedy=nearest(key, known)
            )
        if key in given:
            raise InputError(f"{key} is given twice", where=f"--target {text}", remedy="give it once")
        given[key] = value
    port, overcommit = given.pop("port", str(DEFAULT_PORT)), given.pop("overcommit", "no")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(
            f"{port!r} is not a port", where=f"--target {text}", remedy="give a number from 1 to 65535"
        )
    if overcommit not in ("yes", "no"):
        raise InputError(
            f"overcommit={overcommit} is not known", where=f"--target {text}", remedy="write yes or no"
        )
    for key, values in (("results", _RESULTS), ("affinity", _AFFINITIES)):
        if given.get(key, values[0]) not in values:
            raise InputError(
                f"{key}={given[key]} is not known",
                where=f"--target {text}",
                remedy=f"choose from: {', '.join(values)}, or omit it",
            )
    if "reached_from" in given:
        given["reached_from"] = _cidr(given["reached_from"], where=f"--target {text}")
    if "ceph" in given and "lab" in given:
        raise InputError(
            "ceph= and lab= both name the cluster below the cloud",
            where=f"--target {text}",
            remedy="give one of them",
        )
    if alone := [key for key in ("settings", "osd_conf") if key in given and not {"ceph", "lab"} & given.keys()]:
        raise InputError(
            f"{alone[0]}= is for the Ceph cluster below the cloud, and none is named",
            where=f"--target {text}",
            remedy="add ceph=/path/of/ceph.conf or lab=NAME, or omit it",
        )
    return CloudChoice(cloud=cloud, port=int(port), overcommit=overcommit == "yes", **given)


def _cidr(text: str, *, where: str) -> str:
    """Return addresses in Neutron's form; a single address gets its prefix length."""
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise InputError(
            f"reached_from: {error}", where=where, remedy="write addresses like 192.0.2.7/32 or 192.0.2.0/24"
        ) from None


def require_whole(choice: CloudChoice) -> None:
    """Require flavor and volume type, which only measurements need.

    Raises:
        InputError: flavor or volume type is missing.
    """
    for key in ("flavor", "volume_type"):
        if not getattr(choice, key):
            raise InputError(
                f"the {key} of the benchmark clients is missing",
                where="--target openstack",
                remedy=f"add it: openstack:{choice.cloud},{key}=NAME,...",
            )


def state_folder(choice: CloudChoice) -> Path:
    """Return the folder for the journal and the lock of a cloud."""
    name = choice.cloud or os.environ.get("OS_CLOUD") or os.environ.get("OS_AUTH_URL") or "default"
    return user_state_path("cephfit") / "openstack" / hashlib.sha256(name.encode()).hexdigest()[:16]
