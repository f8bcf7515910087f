"""QoS of volume types: the limits that Cinder lays on every volume, below whatever the storage can do."""

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
        """What each volume may do at most, one part of a sentence for each limit."""
        return tuple(said for key, value in sorted(self.specs.items()) if (said := _limit(key, value)))

    def sentence(self, volume_type: str) -> str:
        """What nobody will measure more of than this; empty where the spec limits nothing."""
        if not self.limits():
            return ""
        return (
            f"volumes of type {volume_type} do at most {'; '.join(self.limits())}, each "
            f"({_ENFORCED.get(self.consumer, self.consumer)}, QoS spec {self.name}): what is faster is not seen"
        )


@dataclass(frozen=True, slots=True)
class TypeQos:
    """What is known of the QoS of a volume type.

    Attributes:
        qos: None where there is none, or nobody here may see it.
        unseen: Cinder shows QoS to administrators only, and this user is none.
    """

    qos: Qos | None
    unseen: bool = False

    def to_json(self) -> Any:
        """For the facts of a run."""
        return "not visible to this user" if self.unseen else self.qos and self.qos.to_json()


def qos_of_types(cloud: Connection) -> dict[str, TypeQos]:
    """QoS by the name of each volume type that this project may use."""
    # The SDK's volume types do not carry ``qos_specs_id``.
    types = persistently(lambda: json_of(cloud, "/types") or {}, where="volume types")["volume_types"]
    specs: dict[str, Qos | None] = {}
    found = {}
    for one in types:
        # Cinder leaves the key out for those who may not see it.
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
    """``total_iops_sec`` = 500 as words; empty for what is no limit, such as ``size_iops_sec``.

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
