"""Wait until every service is ready to use, which is more than being "up"."""

import time
from collections.abc import Callable, Mapping

import keystoneauth1.exceptions
import openstack.exceptions
from openstack.connection import Connection

from cephfit.core.errors import ClusterError
from cephfit.lab.openstack import cloud_resources
from cephfit.lab.openstack.layout import Layout

_POLL_SECONDS = 0.5
_READY_SECONDS = 300.0
_NEUTRON_AGENTS = {"neutron-linuxbridge-agent", "neutron-dhcp-agent", "neutron-metadata-agent"}


def _nova(cloud: Connection, layout: Layout) -> str:
    up = {service.binary for service in cloud.compute.services() if service.state == "up"}
    missing = {"nova-conductor", "nova-scheduler", "nova-compute"} - up
    if missing:
        return f"{', '.join(sorted(missing))} not up"
    return "" if list(cloud.compute.hypervisors()) else "no compute host in a cell yet"


def _placement(cloud: Connection, layout: Layout) -> str:
    answer = cloud.placement.get("/resource_providers")
    return "" if answer.json()["resource_providers"] else "no compute host in placement yet"


def _neutron(cloud: Connection, layout: Layout) -> str:
    missing = _NEUTRON_AGENTS - {agent.binary for agent in cloud.network.agents() if agent.is_alive}
    return f"{', '.join(sorted(missing))} not alive" if missing else ""


def _cinder(cloud: Connection, layout: Layout) -> str:
    # Until the scheduler has a report from a back end that is "up", it sets the first volume to `error`.
    pools = cloud.block_storage.get("/scheduler-stats/get_pools?detail=true").json().get("pools", [])
    known = {pool["capabilities"].get("volume_backend_name") for pool in pools}
    missing = set(layout.pools) - known
    if missing:
        return f"the scheduler has no report from the back ends {', '.join(sorted(missing))}"
    down = [s.binary for s in cloud.block_storage.services() if s.state != "up"]
    return f"{', '.join(down)} not up" if down else ""


def _heat(cloud: Connection, layout: Layout) -> str:
    engines = cloud.orchestration.get("/services").json().get("services", [])
    return "" if any(engine["status"] == "up" for engine in engines) else "no heat-engine is up"


def _glance(cloud: Connection, layout: Layout) -> str:
    list(cloud.image.images())
    return ""


_CHECKS: Mapping[str, Callable[[Connection, Layout], str]] = {
    "glance": _glance,
    "nova": _nova,
    "placement": _placement,
    "neutron": _neutron,
    "cinder": _cinder,
    "heat": _heat,
}


def why_not_ready(cloud: Connection, layout: Layout) -> dict[str, str]:
    """Return why each component is not ready; empty if all are ready."""
    reasons = {}
    for name, check in _CHECKS.items():
        try:
            reason = check(cloud, layout)
        except (
            openstack.exceptions.SDKException,
            keystoneauth1.exceptions.ClientException,
            ValueError,
            KeyError,
        ) as error:
            reason = str(error) or type(error).__name__
        if reason:
            reasons[name] = reason
    return reasons


def wait_ready(
    layout: Layout,
    *,
    alive: Callable[[], None] = lambda: None,
    heard: Callable[[str], None] = lambda name: None,
) -> None:
    """Wait until every component is ready.

    Args:
        alive: called between polls; raises if a daemon died.
        heard: called once with the name of each component that became ready.

    Raises:
        ClusterError: it takes too long; states the remaining reasons.
    """
    until = time.monotonic() + _READY_SECONDS
    waiting = set(_CHECKS)
    while True:
        alive()
        cloud = cloud_resources.connect(layout)
        reasons = why_not_ready(cloud, layout)
        cloud.close()
        for name in sorted(waiting - set(reasons)):
            heard(name)
        waiting = set(reasons)
        if not reasons:
            return
        if time.monotonic() > until:
            faults = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            raise ClusterError(
                f"not ready within {_READY_SECONDS:g} s: {faults}",
                where=f"OpenStack of lab {layout.name}",
                remedy=f"the logs are in {layout.folder / 'log'}",
            )
        time.sleep(_POLL_SECONDS)
