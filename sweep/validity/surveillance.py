"""Everything that is watched while a cell is measured: health during it, hosts and daemons around it."""

from collections.abc import Iterable
from types import TracebackType
from typing import Any

from cephfit.errors import ClusterError
from cephfit.protocols import Client, Target
from cephfit.sweep.telemetry.use import Look
from cephfit.sweep.telemetry.witness import ClientCpu, Witness
from cephfit.sweep.validity.disturbances import Mark
from cephfit.sweep.validity.health_watch import HealthWatch
from cephfit.sweep.validity.watched_target import HasWitness, TellsDisturbances, VouchesForClients


class Surveillance:
    """Watches a target while a ``with`` block runs.

    The health is looked at twice a second (one monitor command). Hosts and daemons are looked at before and after,
    so that looking does not change what is measured. Nothing runs on a device that is a client's volume no longer.

    Args:
        target: that something runs on.
        witness: of its hosts and daemons, kept from run to run; None where there is none.
    """

    def __init__(self, target: Target, witness: Witness | None) -> None:
        self._target = target
        self._witness = witness
        self._health = HealthWatch(target)
        self._mark: Mark | None = None
        self._disturbances: tuple[str, ...] = ()
        self._before: Look | None = None
        self._after: Look | None = None

    @property
    def n_looks(self) -> int:
        """How often the health was looked at."""
        return self._health.n_looks

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why what ran cannot be trusted, each reason once; empty if nothing speaks against it."""
        return tuple(dict.fromkeys((*self._health.reasons, *self._disturbances)))

    def used(
        self, *, io_seconds: float, clients: Iterable[Client], cpu: ClientCpu | None = None
    ) -> dict[str, Any] | None:
        """What hosts and daemons did, and what the run was bound by; None where nobody saw it. See ``Witness``."""
        if self._witness is None or self._before is None or self._after is None:
            return None
        return self._witness.used(self._before, self._after, io_seconds=io_seconds, clients=clients, cpu=cpu or {})

    def __enter__(self) -> "Surveillance":
        if isinstance(self._target, VouchesForClients):
            self._target.require_served()
        if isinstance(self._target, TellsDisturbances):
            try:
                self._mark = self._target.mark()
            except ClusterError as error:
                self._disturbances = (error.what,)
        self._before = self._look()
        self._health.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._after = self._look() if kind is None else None
        self._health.__exit__(kind, error, tb)
        if kind is None and self._mark is not None and isinstance(self._target, TellsDisturbances):
            try:
                self._disturbances = self._target.disturbances_since(self._mark)
            except ClusterError as refused:
                self._disturbances = (refused.what,)

    def _look(self) -> Look | None:
        if self._witness is None:
            return None
        try:
            return self._witness.look()
        except ClusterError as error:
            return Look({}, {}, (error.what,))


def witness_of(target: Target) -> Witness | None:
    """Who sees the target's hosts and daemons, if anybody does."""
    return target.witness() if isinstance(target, HasWitness) else None
