"""The I/O of others in the very pool that is measured, told apart by image: ``rbd perf image counters``."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from cephfit.core.errors import CephfitError
from cephfit.core.protocols import CephAdmin
from cephfit.measure.counters.image_watch import COMMAND, ImageIo, parse


class SeesForeignIo(Protocol):
    """Who tells others' I/O from ours where both are in the same pool."""

    def begin(self) -> None:
        """From now on it counts."""

    def poll(self) -> None:
        """To be called while something runs, as often as is convenient."""

    def rates(self) -> Mapping[str, float]:
        """I/Os per second of others since ``begin``, by pool/image; of those that did any."""


POLL_SECONDS = 20.0
"""How often the manager is asked while something runs: it ceases to count a minute after the last question."""


class ForeignIoInPool:
    """Watches all images of a pool but those that are measured, from ``begin`` on.

    The OSDs report once per ``mgr_stats_period`` (5 s), so what is known lies up to two of these behind. Seen are
    images in the pool's default namespace; not seen are objects of no image (of RADOS's own users, of CephFS) and
    images whose data lie in another pool, whose load shows in that pool's.

    Args:
        admin: commands to the manager itself; through a monitor it would not know whose key asks, and refuse.
        pool: shared with others.
        is_ours: whether an image in it is measured by us, by name.
        note: hears once why nobody can see the others, where it is so; that is no error.
        clock: seconds, rising.
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
        """From now on it counts."""
        self._look()
        self._done.clear()
        self._began = self._looked

    def poll(self) -> None:
        """To be called while something runs, as often as is convenient."""
        if self._clock() >= self._looked + POLL_SECONDS:
            self._look()

    def rates(self) -> Mapping[str, float]:
        """I/Os per second (the OSDs' operations) since ``begin``, by pool/image; of those that did any."""
        self._look()
        seconds = max(self._looked - self._began, 1e-3)
        return {
            f"{self._pool}/{image}": n_ios / seconds
            for image, n_ios in self._done.items()
            if n_ios and not self._is_ours(image)
        }

    def _look(self) -> None:
        try:
            found = parse(self._admin.tell("mgr", COMMAND, pool_spec=self._pool))
        except (CephfitError, KeyError, TypeError, ValueError) as error:
            if not self._noted:
                why = error.what if isinstance(error, CephfitError) else repr(error)
                self._note(f"what others do on images in pool {self._pool} is not seen: {why}")
            self._noted = True
            found = {}
        self._looked = self._clock()
        for (pool, image), io in found.items():
            if pool == self._pool:
                self._add(image, io)

    def _add(self, image: str, io: ImageIo) -> None:
        now, before = io.write_ops + io.read_ops, self._known.get(image, 0)
        # Less than before: the manager had forgotten, and began anew.
        self._done[image] = self._done.get(image, 0) + (now - before if now >= before else now)
        self._known[image] = now


class ForeignIoInPools:
    """The same for several pools, which become known as volumes are made in them.

    Args:
        pools: those that are shared with others, as far as they are known now.
        watched: watches one pool.
    """

    def __init__(self, pools: Callable[[], Iterable[str]], watched: Callable[[str], SeesForeignIo]) -> None:
        self._pools = pools
        self._watched = watched
        self._by_pool: dict[str, SeesForeignIo] = {}

    def begin(self) -> None:
        """From now on it counts, in the pools that are known now."""
        for pool in self._pools():
            if pool not in self._by_pool:
                self._by_pool[pool] = self._watched(pool)
        for foreign_io in self._by_pool.values():
            foreign_io.begin()

    def poll(self) -> None:
        """To be called while something runs, as often as is convenient."""
        for foreign_io in self._by_pool.values():
            foreign_io.poll()

    def rates(self) -> Mapping[str, float]:
        """I/Os per second of others since ``begin``, by pool/image."""
        return {image: rate for foreign_io in self._by_pool.values() for image, rate in foreign_io.rates().items()}
