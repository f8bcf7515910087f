"""What Cinder says of volumes once a configuration is in place, held against what it asks for."""

from collections.abc import Sequence
from typing import Any

from openstack.connection import Connection

from cephfit.configuration import Configuration
from cephfit.sweep.cloud import volumes
from cephfit.sweep.cloud.qos import qos_of_types
from cephfit.sweep.cloud.stacks import Node
from cephfit.sweep.cloud.volume_kinds import read_back


def volumes_found(
    cloud: Connection, configuration: Configuration, volume_type: str, nodes: Sequence[Node]
) -> tuple[dict[str, Any], list[str]]:
    """What there is, and what of it differs, one sentence each.

    Args:
        cloud: connection.
        configuration: that is in place.
        volume_type: that its volumes should have.
        nodes: whose volumes.
    """
    found = {node.name: volumes.type_of(cloud, node.volume) for node in nodes}
    qos = qos_of_types(cloud)[volume_type]
    values, mismatches = read_back(configuration, qos.qos)
    mismatches += [
        f"a volume is of type {t}, not {volume_type}" for t in sorted({*found.values()}) if t != volume_type
    ]
    if configuration.settings:
        values[f"pool/volume/type = {volume_type}"] = found
    values[f"QoS of volume type {volume_type}"] = {"cinder": qos.to_json()}
    return values, mismatches
