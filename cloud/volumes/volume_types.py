"""The volumes that a configuration requires, and their comparison with Cinder's report once it is in place.

A configuration requires a volume type of the cloud, or a copy of one with declared QoS.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openstack.connection import Connection

from cephfit.cloud.cleanup.ownership import own_name
from cephfit.cloud.stacks import Node
from cephfit.cloud.volumes import cinder_volumes
from cephfit.cloud.volumes.qos import Qos, qos_of_types
from cephfit.core.units import KIB, MIB
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
