"""What a target may offer to those who watch it while a cell is measured."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from cephfit.measure.telemetry.telemetry_collector import TelemetryCollector
    from cephfit.measure.validity.disturbances import Mark


@runtime_checkable
class HasTelemetry(Protocol):
    """Its hosts and daemons can be seen.

    Asked: by ``surveillance.telemetry_of``, once before the first cell is measured. Without it: samples do not say
    what hosts and daemons did, and reports name no bottleneck.
    """

    @abstractmethod
    def telemetry(self) -> TelemetryCollector:
        """Who sees them."""


@runtime_checkable
class ChecksClients(Protocol):
    """It can say whether what its clients write to is still theirs.

    Asked: by ``surveillance.Surveillance``, right before everything that is measured, whatever the caches'
    condition. Without it: the clients' devices are taken for theirs.
    """

    @abstractmethod
    def require_served(self) -> None:
        """Raises:
        HostError: a client's device is its volume no longer.
        """


@runtime_checkable
class ReportsDisturbances(Protocol):
    """It can say what happened since a moment.

    Asked: by ``surveillance.Surveillance``, before and after everything that is measured. Without it: only the
    health that is seen meanwhile speaks against a sample.
    """

    @abstractmethod
    def mark(self) -> Mark:
        """Now."""

    @abstractmethod
    def disturbances_since(self, mark: Mark) -> tuple[str, ...]:
        """What happened since then that a sample must not be trusted for; empty if nothing did."""
