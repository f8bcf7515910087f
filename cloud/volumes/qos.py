"""QoS of volume types: the limits that Cinder sets for every volume, whatever the storage can do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openstack.connection import Connection

from cephfit.cloud.cloud_connection import HIDDEN, json_of, persistently
from cephfit.core.units import format_nbytes

_SIDES = {"total": "reads and writes", "read": "reads", "write": "writes"}
_ENFORCED = {
    "front-end": "by the hypervisor",
    "back-end": "by the storage",
    "both": "by the hypervisor and the storage",
}
"""Consumers of QoS specs (Cinder's administration guide, "Basic volume quality of service")."""


@dataclass(frozen=True, slots=True)
class Qos:
    """A QoS spec of Cinder.

    Attributes:
        name: of the spec.
        consumer: who enforces it: ``front-end``, ``back-end`` or ``both``.
        specs: such as ``{"total_iops_sec": "500"}``.
    """

    name: str
    consumer: str
    specs: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """For the facts of a run."""
        return {"name": self.name, "consumer": self.consumer, "specs": dict(sorted(self.specs.items()))}

    def limits(self) -> tuple[str, ...]:
        """Return the limits of each volume, each as a part of a sentence."""
        return tuple(words for key, value in sorted(self.specs.items()) if (words := _limit(key, value)))

    def sentence(self, volume_type: str) -> str:
        """Return a sentence on the limits of measured rates; empty where the spec limits nothing."""
        if not self.limits():
            return ""
        return (
            f"volumes of type {volume_type} do at most {'; '.join(self.limits())}, each "
            f"({_ENFORCED.get(self.consumer, self.consumer)}, QoS spec {self.name}): what is faster is not seen"
        )


@dataclass(frozen=True, slots=True)
class TypeQos:
    """Known QoS of a volume type.

    Attributes:
        qos: None where there is none, or this user may not see it.
        unseen: whether Cinder hides it, because this user is not an administrator.
    """

    qos: Qos | None
    unseen: bool = False

    def to_json(self) -> Any:
        """For the facts of a run."""
        return "not visible to this user" if self.unseen else self.qos and self.qos.to_json()


def qos_of_types(cloud: Connection) -> dict[str, TypeQos]:
    """Return the QoS of each volume type that this project may use, by the type's name."""
    # The SDK's volume types do not carry ``qos_specs_id``.
    types = persistently(lambda: json_of(cloud, "/types") or {}, where="volume types")["volume_types"]
    specs: dict[str, Qos | None] = {}
    found = {}
    for one in types:
        # Cinder omits the key for users who may not see it.
        if "qos_specs_id" not in one:
            found[str(one["name"])] = TypeQos(None, unseen=True)
            continue
        spec_id = one["qos_specs_id"]
        if spec_id and spec_id not in specs:
            specs[spec_id] = persistently(_spec, cloud, spec_id, where=f"QoS spec {spec_id}")
        qos = specs[spec_id] if spec_id else None
        found[str(one["name"])] = TypeQos(qos, unseen=bool(spec_id) and qos is None)
    return found


def _spec(cloud: Connection, spec_id: str) -> Qos | None:
    answer = json_of(cloud, f"/qos-specs/{spec_id}", HIDDEN)
    if answer is None:
        return None
    spec = answer["qos_specs"]
    return Qos(str(spec["name"]), str(spec["consumer"]), {key: str(v) for key, v in spec["specs"].items()})


def _limit(key: str, value: str) -> str:
    """Return a limit such as ``total_iops_sec`` = 500 in words; empty for keys like ``size_iops_sec``.

    The keys are those of libvirt's iotune and, with ``_per_gb``, multiplied by the volume's size.
    """
    per_gib = " for each GiB" if key.endswith(("_per_gb", "_per_gb_min")) else ""
    side, _, unit = key.removesuffix("_min").removesuffix("_per_gb").partition("_")
    if side not in _SIDES or not value.isdigit() or int(value) == 0:
        return ""
    if unit == "iops_sec":
        return f"{value} I/Os per second{per_gib} ({_SIDES[side]})"
    if unit == "bytes_sec":
        return f"{format_nbytes(int(value))} per second{per_gib} ({_SIDES[side]})"
    return ""
