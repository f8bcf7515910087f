"""A workload on the simulated cluster: the accesses of a profile, at the true rates of a configuration.

The time of one pass through the profile under a configuration X is

    T = foreground(X) + max(idle + background(default), background(X))

*Foreground* is the time of reads, and of writes that the workload waits for. *Background* is that of writes which
are written back while it goes on. Their time under the default, and the idle time of the profile, can hide them.
What takes longer than that adds to the run. So T under the default is foreground + background + idle.
"""

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import Client, WarmsCaches, Workload
from cephfit.core.units import KIB, MIB
from cephfit.core.values.cells import Op
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration
from cephfit.core.values.demand import PASSES_PER_SECOND, Demand
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import PROBE_PREFIX
from cephfit.targets.simulated import SimulatedTarget
from cephfit.targets.simulated_storage import Access, iops

_BLOCK_NBYTES = 512
_UNALIGNED_NBYTES = 4 * KIB
"""Offsets of accesses that are not aligned to their own size are multiples of this, a file system's block."""
_DEFAULT = Configuration(DEFAULT_CONFIGURATION)
LEAST_NBYTES = MIB
"""Least size of the workload's volume, which holds no data."""


def demands_of(profile: Profile) -> tuple[Demand, ...]:
    """Return the demands of a profile; from its cells where it has none.

    Demands from cells have depth 1 and the benchmark's size of the bin. They are aligned, and the workload waits
    for them. Their waiting times are unknown.
    """
    if profile.demands is not None:
        return profile.demands
    return tuple(
        Demand(cell.pattern, cell.size.benchmark_nbytes, True, 1.0, True, round(n), None)
        for cell, n in profile.cell_counts().items()
        if round(n)
    )


def access_of(demand: Demand, *, sync: str = "") -> Access:
    """Return the access that a demand consists of; what is unknown is depth 1 and aligned."""
    nbytes = max(1, round(demand.nbytes / _BLOCK_NBYTES)) * _BLOCK_NBYTES
    align = _UNALIGNED_NBYTES if demand.is_aligned is False else 0
    return Access(
        nbytes, demand.pattern, demand.depth or 1.0, align, sync if demand.pattern.op is Op.WRITE else ""
    )


def sync_of(profile: Profile) -> str:
    """Return how the writes that the workload waits for are made durable: a flush after so many of them.

    Empty, as in ``Load.sync``, if there are no flushes or no such writes.
    """
    flushes = profile.commits.flushes if profile.commits is not None else 0
    writes = sum(d.accesses for d in demands_of(profile) if d.pattern.op is Op.WRITE and not is_background(d))
    if not flushes or not writes:
        return ""
    return f"every {max(1, round(writes / flushes))}"


def seconds_of(profile: Profile, configuration: Configuration, *, n_clients: int = 1) -> float:
    """Return the true time of one pass through a profile, in seconds, while ``n_clients`` run it at once.

    Raises:
        InputError: a setting requires a number or size, and its value is neither.
    """
    demands, sync = demands_of(profile), sync_of(profile)

    def spent(on: Configuration, *, background: bool) -> float:
        return sum(
            d.accesses / iops(on, access_of(d, sync="" if background else sync), n_clients=n_clients)
            for d in demands
            if is_background(d) is background
        )

    hidden = (profile.idle_seconds or 0.0) + spent(_DEFAULT, background=True)
    return spent(configuration, background=False) + max(hidden, spent(configuration, background=True))


def is_background(demand: Demand) -> bool:
    """Return whether a demand is written back while the workload goes on."""
    return demand.pattern.op is Op.WRITE and demand.is_sync is False


class SimulatedWorkload(Workload, WarmsCaches):
    """Runs a profile on a simulated target. Nothing is written; the volume holds no data."""

    metric = "accesses/s"

    def __init__(self, target: SimulatedTarget, profile: Profile) -> None:
        self._target = target
        self._profile = profile
        self.name = profile.name

    def description(self) -> Mapping[str, Any]:
        text = json.dumps(self._profile.to_json(), sort_keys=True)
        return {"version": 1, "profile": hashlib.sha256(text.encode()).hexdigest()}

    def prepare(self, client: Client) -> None:
        if client.nbytes < LEAST_NBYTES:
            raise InputError(
                f"the volume of client {client.name} has {client.nbytes} bytes",
                where=client.name,
                remedy=f"a simulated workload needs {LEAST_NBYTES}",
            )

    def run(self, client: Client, seconds: float, *, seed: int) -> tuple[float, Mapping[str, Any]]:
        """Return accesses per second: the true rate with the target's noise and the luck of the volume.

        All clients of the target run at once, and slow each other down.

        Raises:
            ClusterError: no configuration is applied.
            InputError: as ``seconds_of``.
        """
        configuration, simulation = self._target.applied, self._target.simulation
        if configuration is None:
            raise ClusterError(
                "no configuration is applied", where=self._target.name, remedy="apply one before the workload runs"
            )
        started_ns = time.time_ns()
        time.sleep(simulation.pace * seconds)
        n_clients = len(self._target.clients()) or 1
        truth = self._profile.n_accesses / seconds_of(self._profile, configuration, n_clients=n_clients)
        dice = simulation.dice("workload", self.name, configuration.name, seed)
        placement = simulation.placement_factor(configuration.name, client, self._target.n_resets)
        return truth * placement * float(dice.lognormal(0.0, simulation.noise)), {
            "simulated": True,
            "true_rate": truth,
            "seed": seed,
            "started_ns": started_ns,
            "finished_ns": time.time_ns(),
        }

    def warm(self, client: Client) -> None:
        """Do nothing: nothing is read."""

    def cleanup(self, client: Client) -> None:
        """Do nothing: nothing is mounted."""


class SimulatedClone(SimulatedWorkload):
    """Probes a profile on a simulated target: passes of the profile per second, with noise of its own."""

    metric = PASSES_PER_SECOND

    def __init__(self, target: SimulatedTarget, profile: Profile) -> None:
        super().__init__(target, profile)
        self.name = f"{PROBE_PREFIX}{profile.name}"

    def run(self, client: Client, seconds: float, *, seed: int) -> tuple[float, Mapping[str, Any]]:
        """Return passes per second; raises as ``SimulatedWorkload.run``."""
        value, evidence = super().run(client, seconds, seed=seed)
        n = self._profile.n_accesses
        return value / n, {**evidence, "true_rate": evidence["true_rate"] / n}
