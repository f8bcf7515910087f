"""Events between two moments that disturb a measurement and that the cluster's health does not show afterwards.

Examples are an OSD that went down and came back, placement groups that the balancer moved, a pool that was split,
and foreign clients. The cluster may be healthy at both moments.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cephfit.core.errors import CephfitError
from cephfit.core.protocols import CephAdmin
from cephfit.measure.osd_watch import COMMAND, ImageIo, parse

if TYPE_CHECKING:
    from cephfit.measure.telemetry.telemetry_collector import TelemetryCollector


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


FOREIGN_IOPS = 50.0
"""Foreign I/Os per second, over all pools and images, above which a run is invalid. This is half of what one hard
disk can do. Monitoring, idle guests and device health cause less."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The OSD map at one moment.

    Attributes:
        epoch: of the map.
        osd_map: ``osd dump`` at that epoch.
    """

    epoch: int
    osd_map: Mapping[str, Any]


class MapWatch(ReportsDisturbances):
    """Reports disturbances of a Ceph cluster from its OSD maps and its pools' I/O.

    Args:
        admin: runs one command per call; reads the whole map only when its epoch has changed.
        is_ours: whether a pool of this name is measured by the run.
        foreign_io: counts foreign I/O in the measured pools; None where only the run uses them.
    """

    def __init__(
        self,
        admin: CephAdmin,
        is_ours: Callable[[str], bool],
        *,
        foreign_io: SeesForeignIo | None = None,
    ) -> None:
        self._admin = admin
        self._is_ours = is_ours
        self._foreign_io = foreign_io
        self._last: Mark | None = None

    def mark(self) -> Mark:
        """See ReportsDisturbances."""
        if self._foreign_io is not None:
            self._foreign_io.begin()
        return self._now()

    def poll(self) -> None:
        """Keep the count of foreign I/O alive; call it often while a measurement runs."""
        if self._foreign_io is not None:
            self._foreign_io.poll()

    def disturbances_since(self, mark: Mark) -> tuple[str, ...]:
        """See ReportsDisturbances."""
        now = self._now()
        moved = () if now.epoch == mark.epoch else changes(mark.osd_map, now.osd_map)
        images = self._foreign_io.rates() if self._foreign_io is not None else {}
        stats = self._admin.command("osd pool stats")
        return (*moved, *foreign_load(stats, self._is_ours, FOREIGN_IOPS, images))

    def osd_map(self) -> Mapping[str, Any]:
        """Return the current ``osd dump``."""
        return self._now().osd_map

    def _now(self) -> Mark:
        epoch = self._epoch()
        if self._last is None or self._last.epoch != epoch:
            osd_map = self._admin.command("osd dump")
            self._last = Mark(int(osd_map["epoch"]), osd_map)
        return self._last

    def _epoch(self) -> int:
        osds = self._admin.command("status")["osdmap"]
        return int(osds.get("osdmap", osds)["epoch"])


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the differences between two ``osd dump`` that move data or stop I/O. Pure.

    A new epoch alone is no difference: blocklists of clients, labels of pools and trimmed snapshots also create
    epochs.
    """
    reasons = []
    old = {osd["osd"]: osd for osd in before["osds"]}
    for osd in after["osds"]:
        was = old.pop(osd["osd"], None)
        name = f"osd.{osd['osd']}"
        if was is None:
            reasons.append(f"{name} is new")
        elif was["up"] and osd["up"] and was["up_from"] != osd["up_from"]:
            reasons.append(f"{name} went down and came back")
        elif (was["up"], was["in"], was["weight"]) != (osd["up"], osd["in"], osd["weight"]):
            reasons.append(f"{name} changed: {_osd_state(was)} before, {_osd_state(osd)} now")
    reasons += [f"osd.{gone} is gone" for gone in old]
    if before.get("crush_version") != after.get("crush_version"):
        reasons.append("the CRUSH map changed")
    for key, text in (("pg_upmap_items", "the balancer moved PGs"), ("pg_upmap", "PGs were mapped by hand")):
        if before.get(key, []) != after.get(key, []):
            reasons.append(f"{text} ({key} changed)")
    pools = {pool["pool_name"]: pool for pool in before["pools"]}
    for pool in after["pools"]:
        was = pools.get(pool["pool_name"])
        for key in ("pg_num", "pg_placement_num", "size", "crush_rule"):
            if was is not None and was.get(key) != pool.get(key):
                reasons.append(f"{key} of pool {pool['pool_name']} changed from {was.get(key)} to {pool.get(key)}")
    return tuple(reasons)


def foreign_load(
    pool_stats: list[Mapping[str, Any]],
    is_ours: Callable[[str], bool],
    limit_iops: float,
    images: Mapping[str, float] | None = None,
) -> tuple[str, ...]:
    """Return the reason why foreign I/O disturbs the run; empty if it is below the limit. Pure.

    Args:
        pool_stats: ``osd pool stats``: rates of the last seconds.
        is_ours: whether a pool of this name is measured by the run.
        limit_iops: total of foreign I/Os per second that is allowed.
        images: I/Os per second on foreign images in the measured pools.
    """
    images = images or {}
    rates = {}
    for pool in pool_stats:
        rate = pool.get("client_io_rate", {})
        iops = float(rate.get("read_op_per_sec", 0)) + float(rate.get("write_op_per_sec", 0))
        if iops and not is_ours(pool["pool_name"]):
            rates[pool["pool_name"]] = iops
    total = sum(rates.values()) + sum(images.values())
    if total <= limit_iops:
        return ()
    places = "; ".join(
        f"{what} {_busiest(of_these)}" for what, of_these in (("pools", rates), ("images", images)) if of_these
    )
    return (f"foreign clients did {total:.0f} I/Os per second ({places})",)


def _busiest(rates: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {iops:.0f}" for name, iops in sorted(rates.items(), key=lambda r: -r[1])[:3])


def _osd_state(osd: Mapping[str, Any]) -> str:
    return f"{'up' if osd['up'] else 'down'} and {'in' if osd['in'] else 'out'}, weight {osd['weight']:g}"
