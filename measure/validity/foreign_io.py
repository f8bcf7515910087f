"""Foreign I/O in the pool that is measured, by image: ``rbd perf image counters``."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from cephfit.core.errors import CephfitError
from cephfit.core.protocols import CephAdmin
from cephfit.measure.counters.image_watch import COMMAND, ImageIo, parse


class SeesForeignIo(Protocol):
    """Distinguishes foreign I/O from the run's own I/O in the same pool."""

    def begin(self) -> None:
        """Start counting from zero."""

    def poll(self) -> None:
        """Keep the count alive; call it often while a measurement runs."""

    def rates(self) -> Mapping[str, float]:
        """Return the foreign I/Os per second since ``begin``, by pool/image; only images that had any."""


POLL_SECONDS = 20.0
"""Interval between queries during a run. The manager stops counting a minute after the last query."""


class ForeignIoInPool:
    """Counts the I/O of all images of a pool except the measured ones.

    The OSDs report once per ``mgr_stats_period`` (5 s), so counts are up to two periods behind. Only images in the
    pool's default namespace are counted. Not counted are objects that belong to no image (of RADOS users, of
    CephFS), and images with a data pool: their load shows in that pool.

    Args:
        admin: sends commands to the manager itself. Through a monitor, the manager does not know the caller's key
            and refuses.
        pool: shared with other users.
        is_ours: whether an image of this name is one of the run's own.
        note: receives one note if foreign I/O cannot be counted; that is no error.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        admin: CephAdmin,
        pool: str,
        is_ours: Callable[[str], bool],
        *,
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin = admin
        self._pool = pool
        self._is_ours = is_ours
        self._note = note
        self._clock = clock
        self._noted = False
        self._known: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._began = self._looked = clock()

    def begin(self) -> None:
        """Start counting from zero."""
        self._read()
        self._done.clear()
        self._began = self._looked

    def poll(self) -> None:
        """Keep the count alive; call it often while a measurement runs."""
        if self._clock() >= self._looked + POLL_SECONDS:
            self._read()

    def rates(self) -> Mapping[str, float]:
        """Return the OSD operations per second since ``begin``, by pool/image; only images that had any."""
        self._read()
        seconds = max(self._looked - self._began, 1e-3)
        return {
            f"{self._pool}/{image}": n_ios / seconds
            for image, n_ios in self._done.items()
            if n_ios and not self._is_ours(image)
        }

    def _read(self) -> None:
        try:
            found = parse(self._admin.tell("mgr", COMMAND, pool_spec=self._pool))
        except (CephfitError, KeyError, TypeError, ValueError) as error:
            if not self._noted:
                why = error.what if isinstance(error, CephfitError) else repr(error)
                self._note(f"foreign I/O on images in pool {self._pool} cannot be counted: {why}")
            self._noted = True
            found = {}
        self._looked = self._clock()
        for (pool, image), io in found.items():
            if pool == self._pool:
                self._add(image, io)

    def _add(self, image: str, io: ImageIo) -> None:
        now, before = io.write_ops + io.read_ops, self._known.get(image, 0)
        # A lower count means that the manager restarted its count.
        self._done[image] = self._done.get(image, 0) + (now - before if now >= before else now)
        self._known[image] = now


class ForeignIoInPools:
    """Counts foreign I/O in several pools, which become known when volumes are created in them.

    Args:
        pools: returns the shared pools that are known now.
        watched: creates the counter of one pool.
    """

    def __init__(self, pools: Callable[[], Iterable[str]], watched: Callable[[str], SeesForeignIo]) -> None:
        self._pools = pools
        self._watched = watched
        self._by_pool: dict[str, SeesForeignIo] = {}

    def begin(self) -> None:
        """Start counting from zero, in the pools that are known now."""
        for pool in self._pools():
            if pool not in self._by_pool:
                self._by_pool[pool] = self._watched(pool)
        for foreign_io in self._by_pool.values():
            foreign_io.begin()

    def poll(self) -> None:
        """Keep the counts alive; call it often while a measurement runs."""
        for foreign_io in self._by_pool.values():
            foreign_io.poll()

    def rates(self) -> Mapping[str, float]:
        """Return the foreign I/Os per second since ``begin``, by pool/image."""
        return {image: rate for foreign_io in self._by_pool.values() for image, rate in foreign_io.rates().items()}
