"""What the stacks of guests are told, by the names of their templates' parameters."""

from typing import Any

from cephfit.sweep.cloud import guests
from cephfit.sweep.cloud.choice import CloudChoice

BENCHMARK, VERIFICATION = "benchmark", "verification"
"""The templates."""


def stack_parameters(
    choice: CloudChoice, template: str, *, volume_type: str, gib: int, count: int, reached_from: str
) -> dict[str, Any]:
    """The parameters of a stack, without the run's id.

    Args:
        choice: what the guests are made of.
        template: of the stack.
        volume_type: of their volumes.
        gib: size of each volume.
        count: guests.
        reached_from: addresses (CIDR) from which their ports are open; empty without a network.
    """
    # Which steps a verification takes, `errand` of the target says.
    by_template: dict[str, dict[str, Any]] = {
        VERIFICATION: {"steps": ""},
        BENCHMARK: {"fio_port": choice.port, "user_data": guests.user_data(port=choice.port)},
    }
    return {
        "count": count,
        "image": choice.image,
        "flavor": choice.flavor,
        "network": choice.network,
        "availability_zone": choice.zone,
        "affinity": choice.affinity,
        "key_name": choice.key_name,
        "volume_type": volume_type,
        "volume_size": gib,
        **({"reached_from": reached_from} if reached_from else {}),
        **by_template[template],
    }
