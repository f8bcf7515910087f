"""What a run keeps of a cloud: its name, and what guests and volumes are made of there."""

from collections.abc import Mapping
from typing import Any

from openstack.connection import Connection

from cephfit import __version__
from cephfit.sweep.cloud.choice import CloudChoice
from cephfit.sweep.cloud.connection import persistently
from cephfit.sweep.cloud.qos import qos_of_types


def facts_of(cloud: Connection, choice: CloudChoice) -> Mapping[str, Any]:
    """See ``protocols.Target.facts``."""
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
