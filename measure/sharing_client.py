"""One client of a shared volume: what it accesses, and the process that does so through librbd.

The volume has one common region, and one region for each client that no other client accesses; all have the same
size. A client accesses random blocks: with the probability ``shared_pct`` in the common region, otherwise in its
own. This is the sharing degree: the share of accesses to blocks that other clients use too.

The process reads one JSON command a line from standard input and answers each with one JSON line on standard
output:

    {"fill": IMAGE}          write random bytes to the whole image
    {"open": IMAGE}          open the image; the first access of a client takes the exclusive lock, if there is one
    {"run": LOAD, ...}       access the image for some seconds, as ``SharedLoad`` says
    {"burst": N, ...}        write N blocks, and answer with the time of each
    {"close": true}          close the image
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.optional_modules import optional_module
from cephfit.core.units import format_nbytes
from cephfit.core.values.cells import Op
from cephfit.core.values.measurement import RBD_OBJECT_NBYTES


class LockWay(StrEnum):
    """How the clients of one volume exclude each other."""

    NONE = "none"
    EXCLUSIVE = "exclusive-lock"
    RANGES = "ranges"


@dataclass(frozen=True, slots=True)
class SharedLoad:
    """What every client does to the volume.

    Attributes:
        way: how clients exclude each other.
        op: direction of all accesses.
        n_clients: that run together.
        shared_pct: per cent of the accesses that go to the common region.
        access_nbytes: size and alignment of an access.
        range_nbytes: bytes for which one lock is; 0 without range locks.
        volume_nbytes: size of the volume.
        unit_nbytes: size of which a region is a multiple, so that no lock range is in two regions.
    """

    way: LockWay
    op: Op
    n_clients: int
    shared_pct: float
    access_nbytes: int
    range_nbytes: int
    volume_nbytes: int
    unit_nbytes: int

    def __post_init__(self) -> None:
        if self.region_nbytes < max(self.access_nbytes, 1):
            regions = f"{self.n_clients + 1} regions of at least {format_nbytes(self.unit_nbytes)}"
            raise InputError(
                f"the volume has {format_nbytes(self.volume_nbytes)}, too little for {regions}",
                where="--volume-size",
                remedy="use a larger volume, fewer clients, or smaller lock ranges",
            )

    @property
    def region_nbytes(self) -> int:
        """Size of the common region, and of each client's own."""
        return self.volume_nbytes // (self.n_clients + 1) // self.unit_nbytes * self.unit_nbytes

    def offsets(self, client: int, seed: int) -> Iterator[int]:
        """Yield the offsets of a client's accesses, without end.

        Args:
            client: counts from 0.
            seed: the same seed gives the same offsets.
        """
        rng = random.Random(f"{seed} {client}")
        n_blocks = self.region_nbytes // self.access_nbytes
        own = (client + 1) * self.region_nbytes
        while True:
            start = 0 if rng.random() * 100 < self.shared_pct else own
            yield start + rng.randrange(n_blocks) * self.access_nbytes

    def locks(self, offset: int) -> tuple[int, ...]:
        """Return the numbers of the lock ranges that an access touches; empty without range locks.

        They are in rising order. All clients take locks in this order, so they cannot wait for each other in a
        circle.
        """
        if self.way is not LockWay.RANGES:
            return ()
        last = offset + self.access_nbytes - 1
        return tuple(range(offset // self.range_nbytes, last // self.range_nbytes + 1))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "SharedLoad":
        return cls(**{**document, "way": LockWay(document["way"]), "op": Op(document["op"])})


LOCK_NAMESPACE = "cephfit-shared-volume"
"""RADOS namespace of the objects that carry the range locks."""
_LOCK, _TAG = "cephfit", "readers"
_LEASE_SECONDS = 60
"""A lock of a client that died ends by itself."""
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.0002, 0.005
"""Waits between two attempts to get a lock: they double from the first to the longest. Each is lengthened at
random to at most twice as long, so that clients do not try in step."""


class RangeLocks:
    """Advisory locks on objects, one for each range of the volume: exclusive for writes, shared for reads.

    Args:
        ioctx: of the pool, in ``LOCK_NAMESPACE``.
        cookie: distinguishes the clients.
        op: of the accesses.
    """

    def __init__(self, ioctx: Any, cookie: str, op: Op) -> None:
        self._ioctx = ioctx
        self._busy = optional_module("rados").ObjectBusy
        self._cookie = cookie
        self._op = op
        self._rng = random.Random(cookie)

    def acquire(self, numbers: Sequence[int]) -> int:
        """Take the locks in the given order, and return how often one was busy.

        Raises:
            TimeoutError: a lock stayed busy for as long as a dead client may hold it.
        """
        n_busy = 0
        for done, number in enumerate(numbers):
            wait, deadline = _FIRST_WAIT_SECONDS, time.monotonic() + _LEASE_SECONDS
            while not self._try(number):
                if time.monotonic() > deadline:
                    self.release(numbers[:done])
                    raise TimeoutError(f"lock range {number} stayed busy for {_LEASE_SECONDS} s")
                n_busy += 1
                time.sleep(wait * (1 + self._rng.random()))
                wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
        return n_busy

    def _try(self, number: int) -> bool:
        try:
            if self._op is Op.WRITE:
                self._ioctx.lock_exclusive(f"range.{number}", _LOCK, self._cookie, duration=_LEASE_SECONDS)
            else:
                self._ioctx.lock_shared(f"range.{number}", _LOCK, self._cookie, _TAG, duration=_LEASE_SECONDS)
        except self._busy:
            return False
        return True

    def release(self, numbers: Sequence[int]) -> None:
        """Release the locks."""
        for number in numbers:
            self._ioctx.unlock(f"range.{number}", _LOCK, self._cookie)


def run_load(
    load: SharedLoad,
    *,
    access: Callable[[int], None],
    locks: RangeLocks,
    offsets: Callable[[], int],
    ramp_seconds: float,
    run_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Access the volume until the time is over, one access at a time.

    Accesses that begin within the measured time count. Returns JSON values: their number, and the seconds that
    they spent in taking locks, in the access itself and in releasing locks; how often a lock was busy; and all
    times from the first attempt for a lock to the release of the last, in ms.
    """
    begin = clock()
    times: list[float] = []
    seconds = {"lock": 0.0, "access": 0.0, "unlock": 0.0}
    n_busy = 0
    while (now := clock()) < begin + ramp_seconds + run_seconds:
        offset = offsets()
        numbers = load.locks(offset)
        busy = locks.acquire(numbers)
        locked = clock()
        try:
            access(offset)
            accessed = clock()
        finally:
            locks.release(numbers)
        end = clock()
        if now >= begin + ramp_seconds:
            n_busy += busy
            times.append(round(1000 * (end - now), 4))
            for step, spent in (("lock", locked - now), ("access", accessed - locked), ("unlock", end - accessed)):
                seconds[step] += spent
    return {"n": len(times), "seconds": seconds, "n_busy": n_busy, "times_ms": times}


class _Session:
    """The connection of this process, and the image that it has open."""

    def __init__(self, conf: str, client_id: str, keyring: str, pool: str, number: int) -> None:
        rados = optional_module("rados")
        self._rbd = optional_module("rbd")
        # Caches of several clients would not see each other's writes.
        values = {"rbd_cache": "false", "admin_socket": "", "log_to_stderr": "false", "err_to_stderr": "false"}
        if keyring:
            values["keyring"] = keyring
        self._cluster = rados.Rados(conffile=conf, rados_id=client_id, conf=values)
        self._cluster.connect(timeout=30)
        self._ioctx = self._cluster.open_ioctx(pool)
        self._locks = self._cluster.open_ioctx(pool)
        self._locks.set_namespace(LOCK_NAMESPACE)
        self._number = number
        self._image: Any = None

    def execute(self, command: Mapping[str, Any]) -> dict[str, Any]:
        if "fill" in command:
            self._fill(command["fill"])
        elif "open" in command:
            self._image = self._rbd.Image(self._ioctx, command["open"])
        elif "run" in command:
            return self._run(SharedLoad.from_json(command["run"]), command)
        elif "burst" in command:
            return {"times_ms": self._burst(int(command["burst"]), int(command["nbytes"]), command["seed"])}
        elif self._image is not None:
            self._image.close()
            self._image = None
        return {}

    def close(self) -> None:
        with suppress(self._rbd.Error):
            self.execute({"close": True})
        self._locks.close()
        self._ioctx.close()
        self._cluster.shutdown()

    def _run(self, load: SharedLoad, command: Mapping[str, Any]) -> dict[str, Any]:
        data = os.urandom(load.access_nbytes)
        offsets = load.offsets(self._number, command["seed"])

        def access(offset: int) -> None:
            if load.op is Op.WRITE:
                self._image.write(data, offset)
            else:
                self._image.read(offset, load.access_nbytes)

        return run_load(
            load,
            access=access,
            locks=RangeLocks(self._locks, f"c{self._number}.{os.getpid()}", load.op),
            offsets=lambda: next(offsets),
            ramp_seconds=command["ramp_seconds"],
            run_seconds=command["run_seconds"],
        )

    def _fill(self, name: str) -> None:
        with self._rbd.Image(self._ioctx, name) as image:
            for offset in range(0, image.size(), RBD_OBJECT_NBYTES):
                image.write(os.urandom(min(RBD_OBJECT_NBYTES, image.size() - offset)), offset)

    def _burst(self, n: int, nbytes: int, seed: int) -> list[float]:
        rng, data, times = random.Random(f"{seed} {self._number}"), os.urandom(nbytes), []
        n_blocks = self._image.size() // nbytes
        for _ in range(n):
            begin = time.monotonic()
            self._image.write(data, rng.randrange(n_blocks) * nbytes)
            times.append(round(1000 * (time.monotonic() - begin), 4))
        return times


def main() -> None:
    """Obey commands until standard input ends; arguments: conf, client id, keyring, pool, number of the client."""
    conf, client_id, keyring, pool, number = sys.argv[1:]
    session: _Session | None = None
    try:
        for line in sys.stdin:
            try:
                session = session or _Session(conf, client_id, keyring, pool, int(number))
                answer = session.execute(json.loads(line))
            except Exception as error:  # the parent reports it; a traceback here would be lost
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)
    finally:
        if session is not None:
            session.close()


if __name__ == "__main__":
    main()
