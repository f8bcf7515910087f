"""The target's health while something runs, and waiting for it (rule 3 of the design)."""

import threading
import time
from collections.abc import Callable
from types import TracebackType

from cephfit.errors import ClusterError
from cephfit.protocols import Health, Target
from cephfit.units import format_seconds

POLLING_SECONDS = 0.5


def health_now(target: Target) -> Health:
    """The health; a cluster that does not answer is not healthy."""
    try:
        return target.health()
    except ClusterError as error:
        return Health(ok=False, reasons=(error.what,))


class HealthWatch:
    """Looks at the health twice a second while a ``with`` block runs, and once more when it is over."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_until_over, name="health watch", daemon=True)
        self.n_looks = 0
        self._reasons: dict[str, None] = {}
        self._fault: BaseException | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why what ran cannot be trusted, each reason once; empty if the target was healthy at every look."""
        return tuple(self._reasons)

    def __enter__(self) -> "HealthWatch":
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if kind is None:
            if self._fault is not None:
                raise self._fault
            self._look()

    def _look_until_over(self) -> None:
        while not self._over.wait(POLLING_SECONDS):
            try:
                self._look()
            except BaseException as fault:
                self._fault = fault
                return

    def _look(self) -> None:
        health = health_now(self._target)
        self.n_looks += 1
        if not health.ok:
            self._reasons.update(dict.fromkeys(health.reasons or ("not healthy",)))


def wait_until_healthy(
    target: Target,
    *,
    limit_seconds: float,
    note: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when the target is healthy.

    Args:
        target: that is waited for.
        limit_seconds: for how long at most.
        note: told once if there is something to wait for.
        sleep: for tests.

    Raises:
        ClusterError: it is still unhealthy after ``limit_seconds``.
    """
    deadline = time.monotonic() + limit_seconds
    noted = False
    while not (health := health_now(target)).ok:
        why = "; ".join(health.reasons) or "it does not say why"
        if time.monotonic() >= deadline:
            raise ClusterError(
                f"still not healthy after {format_seconds(limit_seconds)}: {why}",
                where=target.name,
                remedy=f"{_mend(health.reasons)}, then run the same command again: it continues where it stopped",
            )
        if not noted:
            note(f"waiting for {target.name} to be healthy: {why}")
            noted = True
        sleep(POLLING_SECONDS)


def _mend(reasons: tuple[str, ...]) -> str:
    if reasons and all("scrubbing" in reason for reason in reasons):
        return "hold scrubs for the time of the sweep (`ceph osd set noscrub`, `ceph osd set nodeep-scrub`)"
    return "repair the cluster"
