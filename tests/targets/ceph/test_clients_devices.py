"""A device that no longer is its client's volume is never written, under any cache condition."""

from pathlib import Path
from typing import Any

import pytest

from cephfit.ceph.cluster_adapters import ClusterAdapters
from cephfit.ceph.delivery.client_conf import ClientAccess
from cephfit.ceph.volumes import Volume
from cephfit.core.errors import HostError
from cephfit.core.protocols import Applied, NullProgress
from cephfit.core.values.configuration import Configuration
from cephfit.measure.engine import CellOutcome, CellRun
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.runner import run_sweep
from cephfit.targets.ceph.volume_clients import VolumeClients
from cephfit.targets.simulated import SimulatedTarget

WARM = """
schema_version: 1
name: warm
measurement: {sizes: [4K], clients: 1, volume_size: 32M, repeats: 1, run_seconds: 1, cache: warm, seed: 1}
"""


class Devices:
    """Implements ``ExportsDevices``; the test chooses the device of an image."""

    def __init__(self) -> None:
        self.now: Path | None = Path("/dev/nbd0")

    def attach(self, volume: Volume, *, conf: Path, client_id: str, folder: Path) -> Path:
        return Path("/dev/nbd0")

    def device_of(self, volume: Volume, *, folder: Path) -> Path | None:
        return self.now

    def detach_all(self, folder: Path) -> None:
        pass


def attached(devices: Devices, folder: Path) -> VolumeClients:
    nothing: Any = None
    clients = VolumeClients(
        "ceph",
        access=ClientAccess(client_id="cephfit", keyring=""),
        folder=folder,
        volumes=nothing,
        adapters=ClusterAdapters(nothing, devices=devices),
    )
    clients.attach({"c0": Volume("p", "i", 1 << 25)})
    return clients


def test_a_volume_that_moved_to_another_device_is_refused(tmp_path: Path) -> None:
    devices = Devices()
    clients = attached(devices, tmp_path)
    clients.require_served()
    devices.now = Path("/dev/nbd1")
    for ask in (clients.require_served, clients.drop_caches):
        with pytest.raises(HostError, match="volume of client c0 is now /dev/nbd1, no longer /dev/nbd0") as caught:
            ask()
        assert "run the same command again" in str(caught.value)


def test_a_device_with_a_dead_program_is_not_measured_with_warm_caches(store: Store, tmp_path: Path) -> None:
    devices = Devices()

    class OnDevices(SimulatedTarget):
        """The simulation, with clients on devices."""

        def apply(self, configuration: Configuration, **how: Any) -> Applied:
            self.served = attached(devices, tmp_path)
            return super().apply(configuration, **how)

        def require_served(self) -> None:
            self.served.require_served()

    target = OnDevices()
    simulation = target.engine()
    ran: list[str] = []

    class DiesAfterTheFirstCell:
        """Implements ``Engine``; after its first cell, another image is on the device."""

        facts = simulation.facts
        warm = simulation.warm

        def run(self, run: CellRun) -> CellOutcome:
            ran.append(str(run.cell))
            devices.now = None
            return simulation.run(run)

    with pytest.raises(HostError, match="program behind /dev/nbd0 of client c0 has died"):
        run_sweep(
            parse_sweep(WARM, file="warm.yaml"),
            target,
            store,
            NullProgress(),
            resume=None,
            engine=DiesAfterTheFirstCell(),
        )
    assert len(ran) == 1
