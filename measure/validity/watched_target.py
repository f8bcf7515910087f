"""Abilities that a target may offer to surveillance while a cell is measured."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from cephfit.measure.telemetry.telemetry_collector import TelemetryCollector
    from cephfit.measure.validity.disturbances import Mark


@runtime_checkable
class HasTelemetry(Protocol):
    """Counters of the target's hosts and daemons can be read.

    Used: by ``surveillance.telemetry_of``, once before the first cell is measured. Without it: samples have no
    utilization of hosts and daemons, and reports name no bottleneck.
    """

    @abstractmethod
    def telemetry(self) -> TelemetryCollector:
        """Return the collector that reads them."""


@runtime_checkable
class ChecksClients(Protocol):
    """The target can check that the clients' devices are still their volumes.

    Used: by ``surveillance.Surveillance``, right before every measurement, whatever the caches' condition.
    Without it: the devices are assumed to be the clients' volumes.
    """

    @abstractmethod
    def require_served(self) -> None:
        """Require that every client's device is its volume.

        Raises:
            HostError: a client's device is no longer its volume.
        """


@runtime_checkable
class ReportsDisturbances(Protocol):
    """The target reports disturbances since an earlier moment.

    Used: by ``surveillance.Surveillance``, before and after every measurement. Without it: only health checks can
    make a sample invalid.
    """

    @abstractmethod
    def mark(self) -> Mark:
        """Mark the current moment."""

    @abstractmethod
    def disturbances_since(self, mark: Mark) -> tuple[str, ...]:
        """Return the events since the mark that make a sample invalid; empty if there were none."""
