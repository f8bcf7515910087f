"""Which cluster a target is: a lab that was removed and made again has the same name and is another one."""

from collections.abc import Mapping
from typing import Any

CLUSTER = "fsid"
"""Key of a target's facts: the cluster's own identifier, where it is a cluster."""


def is_another_cluster(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two sets of facts are of different clusters; targets without an identifier are told by name."""
    return None not in (before.get(CLUSTER), now.get(CLUSTER)) and before[CLUSTER] != now[CLUSTER]
