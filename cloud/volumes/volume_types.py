"""Volume types and their QoS: limits that Cinder sets, types that a run creates, volumes that a sweep requires.

A configuration requires a volume type of the cloud, or a copy of one with declared QoS.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import ConflictException

from cephfit.cloud.cloud_connection import HIDDEN, json_of, made_once, none_if, persistently
from cephfit.cloud.ownership import own_name
from cephfit.cloud.stacks import Node
from cephfit.cloud.volumes import cinder_volumes
from cephfit.cloud.volumes.cinder_volumes import require_types
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.units import KIB, MIB, format_nbytes
from cephfit.core.values.configuration import (
    CONSUMER,
    CONSUMERS,
    SCOPE,
    TYPE,
    VOLUME_KEYS,
    Configuration,
    Partition,
    Setting,
    fault_of_qos,
    qos_declared,
)

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
    spec = none_if(HIDDEN, cloud.block_storage.get_qos_spec, spec_id)
    if spec is None:
        return None
    return Qos(str(spec.name), str(spec.consumer), {key: str(v) for key, v in spec.specs.items()})


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


_UNUSUAL = re.compile(r"[^A-Za-z0-9_.-]")
_LEAST_NBYTES_PER_S = MIB
"""Lowest rate for filling and reading whole volumes; engines do not wait longer."""
_NBYTES_OF_AN_IO = 256 * KIB
"""Lowest size of the pieces of large accesses at the hypervisor, which counts each piece."""


@dataclass(frozen=True, slots=True)
class VolumeKind:
    """The volumes of a configuration.

    Attributes:
        base: a volume type of the cloud.
        qos: declared for them, by Cinder's keys, in the order of the keys; empty for the unchanged type.
    """

    base: str
    qos: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Part of the names of resources for these volumes."""
        plain = _UNUSUAL.sub("_", self.base)
        words = [] if plain == self.base else [_digest(self.base)]
        if self.qos:
            words.append("qos-" + _digest(str(sorted(self.qos.items()))))
        return "-".join([plain, *words])

    def type_name(self, run_id: str) -> str:
        """Return the volume type: the cloud's, or the run's copy of it, with the QoS spec's name."""
        return own_name(run_id, self.label) if self.qos else self.base

    def spec(self, name: str) -> Qos:
        """Return the declared QoS as a Cinder spec. The default ``front-end`` works with every storage."""
        specs = {key: value for key, value in self.qos.items() if key != CONSUMER}
        return Qos(name, self.qos.get(CONSUMER, CONSUMERS[0]), specs)

    def why_not(self, gib: int) -> str:
        """Return why volumes of this size in GiB cannot be measured with this QoS; empty if they can."""
        if not self.qos:
            return ""
        if fault := fault_of_qos(self.qos):
            return fault
        most = min((_nbytes_per_s(self.qos, key, gib) for key in self.qos), default=float("inf"))
        if most < _LEAST_NBYTES_PER_S:
            return (
                f"its QoS allows only {most / KIB:.0f} KiB per second: every volume is written and read once "
                "first, which requires 1 MiB per second or more"
            )
        return ""


def kind_of(configuration: Configuration, *, default: str) -> VolumeKind:
    """Return the kind of a configuration's volumes.

    Args:
        configuration: any.
        default: volume type where it names none.
    """
    named = (str(s.value) for s in configuration.within(Partition.POOL) if (s.scope, s.key) == (SCOPE, TYPE))
    return VolumeKind(next(named, default), qos_declared(configuration))


def is_of_volumes(setting: Setting) -> bool:
    """Return whether a setting is of volumes, the only kind that users of a cloud can choose."""
    return (setting.partition, setting.scope) == (Partition.POOL, SCOPE) and setting.key in VOLUME_KEYS


def read_back(configuration: Configuration, qos: Qos | None) -> tuple[dict[str, Any], list[str]]:
    """Return Cinder's value of each declared QoS key, by setting, and the differences, one sentence each."""
    found = {CONSUMER: qos.consumer, **qos.specs} if qos is not None else {}
    declared = qos_declared(configuration)
    values: dict[str, Any] = {}
    wrong = []
    for setting in configuration.settings:
        key = setting.key.rpartition(".")[2]
        if is_of_volumes(setting) and setting.key != TYPE:
            values[str(setting)] = {"cinder": found.get(key)}
            if found.get(key) != declared[key]:
                wrong.append(f"{setting}: Cinder has {found.get(key)}")
    return values, wrong


def _nbytes_per_s(qos: Mapping[str, str], key: str, gib: int) -> float:
    """Return the rate of large accesses under one limit, in bytes per second."""
    if key == CONSUMER or key.endswith(("_max", "_min")) or key == "size_iops_sec":
        return float("inf")
    limit = int(qos[key]) * (gib if key.endswith("_per_gb") else 1)
    if "bytes_sec" in key:
        return limit
    return limit * min(_NBYTES_OF_AN_IO, int(qos.get("size_iops_sec", _NBYTES_OF_AN_IO)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def volumes_found(
    cloud: Connection, configuration: Configuration, volume_type: str, nodes: Sequence[Node]
) -> tuple[dict[str, Any], list[str]]:
    """Return the volumes' types and QoS as reported, and the differences, one sentence each.

    Args:
        cloud: connection.
        configuration: in place.
        volume_type: expected type of its volumes.
        nodes: of the volumes.
    """
    found = {node.name: cinder_volumes.type_of(cloud, node.volume) for node in nodes}
    qos = qos_of_types(cloud)[volume_type]
    values, mismatches = read_back(configuration, qos.qos)
    mismatches += [
        f"a volume is of type {t}, not {volume_type}" for t in sorted({*found.values()}) if t != volume_type
    ]
    if configuration.settings:
        values[f"pool/volume/type = {volume_type}"] = found
    values[f"QoS of volume type {volume_type}"] = {"cinder": qos.to_json()}
    return values, mismatches


RUN_SPEC = "cephfit:run"
"""Extra spec of a run's volume types. It has a prefix because schedulers match keys without one to back ends."""
_FORBIDDEN = (401, 403)


def why_not_made(cloud: Connection, base: str) -> str:
    """Return why this user cannot create a copy of a volume type with other QoS; empty if it is possible."""
    if _visible_specs(cloud) is None:
        return "QoS is set by the cloud's administrators, and this user is not one"
    type_id = require_types(cloud, [base])[base]
    if persistently(json_of, cloud, f"/types/{type_id}/encryption", _FORBIDDEN, where=f"volume type {base}"):
        return f"volume type {base} encrypts its volumes, and a copy of it would not"
    return ""


def ensure(cloud: Connection, run_id: str, name: str, base: str, qos: Qos) -> None:
    """Ensure a private volume type with QoS, otherwise like ``base``. Parts from a killed process are reused.

    Args:
        cloud: connection of an administrator.
        run_id: its owner.
        name: of the type, and of the QoS spec.
        base: type to copy the extra specs from, which place its volumes in the same back end.
        qos: limits of its volumes.

    Raises:
        InputError: the type ``base`` does not exist.
        ClusterError: Cinder refuses, or the name belongs to a type of another owner.
    """
    spec_id = _spec_named(cloud, name) or _make_spec(cloud, name, qos)
    types = {str(one.name): one for one in volume_types(cloud)}
    if base not in types:
        raise InputError(f"the cloud has no volume type {base}, or this project may not use it")
    made = types.get(name) or _make_type(cloud, run_id, name, dict(types[base].extra_specs or {}))
    if run_of(made) != run_id:
        raise ClusterError("a volume type of another owner has this name", where=f"volume type {name}")
    persistently(_give_to_project, cloud, str(made.id), where=f"volume type {name}")
    persistently(_associate, cloud, spec_id, str(made.id), where=f"QoS spec {name}")


def _give_to_project(cloud: Connection, type_id: str) -> None:
    with suppress(ConflictException):  # the project already has access
        cloud.block_storage.add_type_access(type_id, cloud.current_project_id or "")


def _associate(cloud: Connection, spec_id: str, type_id: str) -> None:
    """Associate a type with a QoS spec; Cinder accepts a repeated request."""
    cloud.block_storage.associate_qos_spec(spec_id, type_id)


def _make_spec(cloud: Connection, name: str, qos: Qos) -> str:
    def make() -> str:
        return str(cloud.block_storage.create_qos_spec(name=name, consumer=qos.consumer, **qos.specs).id)

    # The name ends with the run's hash: no other spec has it.
    return made_once(make, lambda: _spec_named(cloud, name), where=f"QoS spec {name}")


def _spec_named(cloud: Connection, name: str) -> str | None:
    return next((spec.id for spec in qos_specs(cloud) if spec.name == name), None)


def _make_type(cloud: Connection, run_id: str, name: str, extra_specs: Mapping[str, str]) -> Any:
    def make() -> Any:
        return cloud.block_storage.create_type(
            name=name,
            description=f"cephfit run {run_id}",
            is_public=False,  # other projects must not depend on it
            extra_specs={**extra_specs, RUN_SPEC: run_id},
        )

    def find() -> Any:
        return next((one for one in volume_types(cloud) if one.name == name and run_of(one) == run_id), None)

    return made_once(make, find, where=f"volume type {name}")


def delete(cloud: Connection, run_id: str, name: str) -> None:
    """Delete a run's volume type and QoS spec. Missing ones are no error.

    Raises:
        ClusterError: Cinder refuses, because volumes of the type still exist.
    """
    # Delete the type first, without dissociating the spec: existing volumes must keep their QoS.
    for made in volume_types(cloud):
        if made.name == name and run_of(made) == run_id:
            persistently(cloud.block_storage.delete_type, made.id, where=f"volume type {name}")
    if (spec_id := _spec_named(cloud, name)) is not None:
        persistently(cloud.block_storage.delete_qos_spec, spec_id, where=f"QoS spec {name}")


def run_of(volume_type: Any) -> str | None:
    """Return the run of a volume type; None where there is none or this user may not see it."""
    found = (volume_type.extra_specs or {}).get(RUN_SPEC)
    return str(found) if found else None


def volume_types(cloud: Connection) -> list[Any]:
    """Return all volume types that this user may see, including private ones."""
    return persistently(lambda: list(cloud.block_storage.types(is_public="None")), where="volume types")


def qos_specs(cloud: Connection) -> list[Any]:
    """Return all QoS specs; empty for users to whom Cinder shows none."""
    return _visible_specs(cloud) or []


def _visible_specs(cloud: Connection) -> list[Any] | None:
    """Return Cinder's QoS specs; None where this user may not see any."""
    return persistently(none_if, _FORBIDDEN, lambda: list(cloud.block_storage.qos_specs()), where="QoS specs")
