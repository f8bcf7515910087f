"""What a cloud has before any resource is created: facts that a run keeps, a forecast of configurations, and its
servers by class of workload."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openstack.connection import Connection

from cephfit import __version__
from cephfit.cloud.cloud_choice import CloudChoice
from cephfit.cloud.cloud_connection import persistently
from cephfit.cloud.free_capacity import CinderPool, Wanted, fits, why_unchecked
from cephfit.cloud.ownership import NAME_PREFIX
from cephfit.cloud.volumes.cinder_volumes import require_types
from cephfit.cloud.volumes.volume_types import VolumeKind, is_of_volumes, kind_of, qos_of_types, why_not_made
from cephfit.core.values.configuration import Configuration, Difference
from cephfit.core.values.measurement import PlannedSweep


def facts_of(cloud: Connection, choice: CloudChoice) -> Mapping[str, Any]:
    """Return the facts of a cloud. See ``protocols.Target.facts``."""
    flavor = persistently(lambda: cloud.compute.find_flavor(choice.flavor, ignore_missing=True), where="flavors")
    image = persistently(lambda: cloud.image.find_image(choice.image, ignore_missing=True), where="images")
    return {
        "cloud": {
            "name": cloud.name,
            "region": cloud.config.region_name or "",
            "image": choice.image,
            "image_id": image.id if image is not None else None,
            "flavor": choice.flavor,
            "vcpus": flavor.vcpus if flavor is not None else None,
            "ram_mib": flavor.ram if flavor is not None else None,
            "network": choice.network,
            "volume_type": choice.volume_type,
            "qos": {name: qos.to_json() for name, qos in qos_of_types(cloud).items()},
        },
        "versions": {"cephfit": __version__},
    }


class CloudForecast:
    """Forecasts refused configurations, limits of clients, and created resources.

    Args:
        cloud: connection.
        choice: flavor, image, volume type and more of the guests.
    """

    def __init__(self, cloud: Connection, choice: CloudChoice) -> None:
        self._cloud = cloud
        self._choice = choice

    def kind_of(self, configuration: Configuration) -> VolumeKind:
        """Return the kind of a configuration's volumes."""
        return kind_of(configuration, default=self._choice.volume_type)

    def kinds_of(self, configurations: Iterable[Configuration]) -> tuple[VolumeKind, ...]:
        """Return the kinds of several configurations' volumes, each once."""
        return tuple({kind.label: kind for kind in map(self.kind_of, configurations)}.values())

    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """See ``JudgesConfigurations``: settings not of volumes; QoS, if this user is not an administrator.

        Raises:
            InputError: the cloud has no such volume type.
        """
        configurations = tuple(configurations)
        kinds = {c.name: self.kind_of(c) for c in configurations if all(map(is_of_volumes, c.settings))}
        if kinds:
            require_types(self._cloud, list(dict.fromkeys(kind.base for kind in kinds.values())))
        bases = dict.fromkeys(kind.base for kind in kinds.values() if kind.qos)
        why_no_qos = {base: why_not_made(self._cloud, base) for base in bases}
        reasons = {}
        for configuration in configurations:
            against = [
                f"{setting} cannot be set through OpenStack, which lets its users choose only the volume type"
                for setting in configuration.settings
                if not is_of_volumes(setting)
            ]
            kind = kinds.get(configuration.name)
            if kind is not None and kind.qos and (why := why_no_qos[kind.base]):
                against.append(why)
            if against:
                reasons[configuration.name] = tuple(against)
        return reasons

    def limits(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """See ``ReportsLimits``: the QoS of volume types, and the sweep's declared QoS."""
        found = qos_of_types(self._cloud)
        sentences = {}
        for configuration in configurations:
            kind = self.kind_of(configuration)
            of_type = found.get(kind.base)
            qos = kind.spec("of the sweep") if kind.qos else of_type.qos if of_type is not None else None
            if qos is not None and (sentence := qos.sentence(kind.base)):
                sentences[configuration.name] = (sentence,)
        return sentences

    def differences(self, configurations: Iterable[Configuration]) -> tuple[Difference, ...]:
        """Return each configuration's differences to volumes of the target's type."""
        return tuple(
            Difference(configuration.name, "volumes", setting.key, "", str(setting.value))
            for configuration in configurations
            for setting in configuration.settings
            if is_of_volumes(setting)
        )

    def notes(
        self, sweep: PlannedSweep, configurations: Sequence[Configuration], pools: Sequence[CinderPool] | None
    ) -> tuple[str, ...]:
        """Return sentences on what a run would create in the cloud and write there.

        Args:
            sweep: gives the largest number of guests, and the size of their volumes.
            configurations: its supported configurations.
            pools: of Cinder, with their free capacity; None where unknown.
        """
        measurement = sweep.measurement
        notes = []
        by_label: dict[str, list[str]] = {}
        for configuration in configurations:
            by_label.setdefault(self.kind_of(configuration).label, []).append(configuration.name)
        kinds = self.kinds_of(configurations)
        for kind in kinds:
            if kind.qos:
                words = ", ".join(f"{key} = {value}" for key, value in kind.qos.items())
                notes.append(
                    f"a private volume type {NAME_PREFIX}-RUN-{kind.label}-..., like {kind.base}, and a QoS spec "
                    f"of that name ({words}) are created for {', '.join(by_label[kind.label])} and deleted later"
                )
        if pools is None:
            return (*notes, "Cinder shows only administrators the free capacity of the volumes' pools")
        n_clients, nbytes = measurement.most_clients, measurement.volume_nbytes
        wanted = wanted_of(kinds, n_clients)
        found = fits(self._cloud, pools, wanted, nbytes=nbytes)
        for fit in found:
            allowed = self._choice.overcommit or fit.is_enough
            notes.append(fit.sentence + ("" if allowed else ": too little, so the run would refuse to start"))
        return (*notes, *filter(None, [why_unchecked(wanted, found)]))


def wanted_of(
    kinds: Iterable[VolumeKind], n_clients: int, n_there: Sequence[int] = (), *, shares_volume: bool = False
) -> tuple[Wanted, ...]:
    """Return the required guests of each kind of volumes, with the number of existing ones."""
    there = dict(enumerate(n_there))
    return tuple(
        Wanted(
            kind.base,
            n_clients,
            there.get(number, 0),
            has_own_type=bool(kind.qos),
            shares_volume=shares_volume,
        )
        for number, kind in enumerate(kinds)
    )


@dataclass(frozen=True, slots=True)
class ServerCounts:
    """Servers by class.

    Attributes:
        cloud: name.
        by_class: every class, also with 0.
        unmatched: servers in no class.
    """

    cloud: str
    by_class: Mapping[str, int]
    unmatched: int

    @property
    def sentence(self) -> str:
        """What was counted, for display."""
        counted = ", ".join(f"{n} {name}" for name, n in self.by_class.items())
        rest = f"; {self.unmatched} more servers are in no class" if self.unmatched else ""
        return f"counted in cloud {self.cloud}: {counted}{rest}"


def count_servers(cloud: Connection, classes: Sequence[str]) -> ServerCounts:
    """Count the servers that this user sees, each in at most one class.

    A server belongs to the class whose name is a part of its own name, such as ``db`` of ``db-17``; of several, to
    the one with the longest name. Otherwise it belongs to the class with the name of a volume type of its volumes.

    Args:
        cloud: connection.
        classes: names.

    Raises:
        ClusterError: Nova or Cinder refuses or does not answer.
    """
    servers = persistently(lambda: list(cloud.compute.servers()), where=f"cloud {cloud.name}: servers")
    types: dict[str, list[str]] = {}
    for volume in persistently(lambda: list(cloud.block_storage.volumes()), where=f"cloud {cloud.name}: volumes"):
        for attachment in volume.attachments or ():
            types.setdefault(str(attachment["server_id"]), []).append(str(volume.volume_type))
    counts: Counter[str | None] = Counter(_class_of(s.name or "", types.get(s.id, ()), classes) for s in servers)
    return ServerCounts(cloud.name, {name: counts[name] for name in classes}, counts[None])


def _class_of(name: str, volume_types: Sequence[str], classes: Sequence[str]) -> str | None:
    """Return the class of a server; None if it is in none."""
    own = set(re.split(r"[^a-z0-9]+", name.lower()))
    for one in sorted(classes, key=len, reverse=True):
        words = re.split(r"[^a-z0-9]+", one.lower())
        if one.lower() in name.lower() and own.issuperset(words):
            return one
    return next((one for one in classes if one in volume_types), None)
