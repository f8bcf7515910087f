"""Rates at a larger distance between clients and storage, from rates measured at a smaller one. Pure.

One access at a time takes

    T = T_disk + 2 T_net + T_protocol                masked writes: max(T_disk, 2 T_net) + T_protocol

(W. T. Ng et al., "Obtaining High Performance for Storage Outsourcing", FAST 2002, equation 1). A masked write is
acknowledged from a cache, so that the disk works while the acknowledgement travels.

With several accesses outstanding, their delays overlap. Clients, network and storage are a closed queueing
network: N accesses circulate between a delay (the network) and a server whose rate X(n) depends on the n accesses
that it has. Its rate follows exactly from the measured X(1) ... X(N) (Norton's theorem of queueing networks: K. M.
Chandy, U. Herzog, L. Woo, "Parametric analysis of queuing networks", IBM J. Res. Dev. 19, 1975). With N = 1 it is
equation 1.
docs/distance.md derives the other terms: bandwidth, windows, flushes and lost packets.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln

from cephfit.core.errors import InputError
from cephfit.core.statistics.round_effects import Floats
from cephfit.core.units import KIB, format_nbytes
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import Cell, LoadedCell, Op
from cephfit.core.values.measurement import DSYNC, FSYNC

SEGMENT_NBYTES = 1448
"""Payload of a TCP segment in an Ethernet frame of 1500 bytes, with time stamps (RFC 7323)."""
LONE_LOSS_SECONDS = 0.2
"""What Linux adds before it repeats a segment that is alone on its way: the delayed acknowledgement that it may be
waiting for (``tcp_schedule_loss_probe``)."""
_PROBE_RTTS = 2.0
"""Round trips after which Linux repeats the last segment (RFC 8985, section 7.2)."""
_MOST_REPETITIONS = 30
"""Terms of the mean number of repetitions; with 50 % loss the rest is below 1e-9 for a segment."""
MOST_SECONDS = 3600.0
MOST_ROUND_TRIPS = 1000
LEAST_NBYTES_PER_S = 125.0
"""Bounds of what is a network: larger delays and narrower links are mistyped."""
MOST_LOSS = 0.2
"""Above it, packets that are lost several times dominate, for which TCP doubles its time-out: not modelled."""
_MATHIS = math.sqrt(1.5)
_FLUSHES_PER_WRITE = {FSYNC: 1.0, DSYNC: 0.0, "": 0.0}
"""Other texts are ``every N``."""


@dataclass(frozen=True, slots=True)
class Distance:
    """What lies between clients and storage, in addition to what the baselines were measured with.

    Attributes:
        one_way_seconds: added delay of each direction.
        rtt_per_access: round trips that an access waits for, one after the other.
        rtt_per_flush: round trips of a flush; 0 where nothing has to be flushed to the storage.
        nbytes_per_s: bandwidth of the narrowest link; infinite without a limit.
        loss: share of lost packets, 0 to ``MOST_LOSS``.
        connections: TCP connections that share the traffic, such as one to each OSD.
        window_nbytes: that a connection sends before it waits for an acknowledgement, at most; infinite without a
            limit.
        loss_is_congestion: TCP sends less after a loss (CUBIC, Reno); False for BBR.
        acknowledged_seconds: time after which the storage acknowledges a write from a cache, where its disks limit
            the rate of writes; None: they are acknowledged when they are on the disks.
    """

    one_way_seconds: float = 0.0
    rtt_per_access: float = 1.0
    rtt_per_flush: float = 1.0
    nbytes_per_s: float = math.inf
    loss: float = 0.0
    connections: int = 1
    window_nbytes: float = math.inf
    loss_is_congestion: bool = True
    acknowledged_seconds: float | None = None

    def __post_init__(self) -> None:
        delays = (self.one_way_seconds, self.acknowledged_seconds or 0.0)
        round_trips = (self.rtt_per_access, self.rtt_per_flush)
        if not all(0 <= delay <= MOST_SECONDS for delay in delays):
            raise _refused(f"a delay is not between 0 and {MOST_SECONDS:g} s")
        if not all(0 <= number <= MOST_ROUND_TRIPS for number in round_trips):
            raise _refused(f"a number of round trips is not between 0 and {MOST_ROUND_TRIPS}")
        if not self.nbytes_per_s >= LEAST_NBYTES_PER_S:
            raise _refused(f"a bandwidth is below {LEAST_NBYTES_PER_S * 8:g} bits per second")
        if not 0 <= self.loss <= MOST_LOSS:
            raise _refused(f"the model holds for losses of 0 to {100 * MOST_LOSS:g} %, not {100 * self.loss:g} %")
        if self.connections < 1:
            raise _refused("there is no connection")
        if not self.window_nbytes >= SEGMENT_NBYTES:
            raise _refused(f"a TCP window is below one segment, {SEGMENT_NBYTES} bytes")

    @property
    def rtt_seconds(self) -> float:
        """The added round trip."""
        return 2 * self.one_way_seconds

    @property
    def link_nbytes_per_s(self) -> float:
        """The bandwidth, or what TCP reaches with these losses if that is less.

        Source: M. Mathis et al., "The macroscopic behavior of the TCP congestion avoidance algorithm", 1997.
        """
        if not self.loss or not self.rtt_seconds or not self.loss_is_congestion:
            return self.nbytes_per_s
        of_one = SEGMENT_NBYTES / self.rtt_seconds * _MATHIS / math.sqrt(self.loss)
        return min(self.nbytes_per_s, self.connections * of_one)

    @property
    def windows_nbytes_per_s(self) -> float:
        """What the windows of all connections let through."""
        return self.connections * self.window_nbytes / self.rtt_seconds if self.rtt_seconds else math.inf

    def delay_seconds(self, nbytes: int) -> float:
        """Return the added delay of one access: round trips, further windows, the mean wait for lost packets."""
        more_windows = max(0, math.ceil(nbytes / self.window_nbytes) - 1)
        return (self.rtt_per_access + more_windows) * self.rtt_seconds + self.loss_seconds(nbytes)

    def loss_seconds(self, nbytes: int) -> float:
        """Return the mean time that an access waits for repeated packets.

        The message without data is one packet, which waits longer when it is lost than one of several. All
        segments of the other message that are lost at once are repeated at once: it takes as many repetitions as
        the segment that is lost most often.
        """
        n_segments = math.ceil(nbytes / SEGMENT_NBYTES)
        of_several = _PROBE_RTTS * self.rtt_seconds
        alone = self.loss * (LONE_LOSS_SECONDS + of_several)
        if n_segments == 1 or not self.loss:
            return 2 * alone
        repetitions = math.fsum(
            -math.expm1(n_segments * math.log1p(-(self.loss**k))) for k in range(1, _MOST_REPETITIONS + 1)
        )
        return alone + repetitions * of_several

    def flush_seconds(self, sync: str) -> float:
        """Return the added time per write for flushes; ``sync`` as in ``LoadedCell``."""
        known = _FLUSHES_PER_WRITE.get(sync)
        per_write = 1 / int(sync.removeprefix("every ")) if known is None else known
        return per_write * self.rtt_per_flush * self.rtt_seconds

    def rates(self, cell: LoadedCell, rates: Floats) -> float:
        """Return the rate at this distance.

        Args:
            cell: size, pattern, depth of a client and flushes.
            rates: accesses per second with 1 ... N of them outstanding, of all clients, shape (N,).
        """
        delay = self.delay_seconds(cell.nbytes)
        link = self.link_nbytes_per_s / cell.nbytes
        if self.acknowledged_seconds is not None and cell.pattern.op is Op.WRITE:
            away = closed_rate(np.full(len(rates), math.inf), delay + self.acknowledged_seconds, link)
            found = min(float(rates[-1]), away)
        else:
            found = closed_rate(rates, delay, link)
        found = min(found, self.windows_nbytes_per_s / cell.nbytes)
        # Each client waits for its own flushes, and the others do not.
        n_clients = len(rates) / cell.iodepth
        return 1 / (1 / found + self.flush_seconds(cell.sync) / n_clients)

    def text(self) -> str:
        """Return the distance in words."""
        parts = [f"{1e3 * self.one_way_seconds:g} ms farther each way"]
        if self.nbytes_per_s < math.inf:
            parts.append(f"{self.nbytes_per_s * 8 / 1e6:g} Mbit/s")
        if self.loss:
            parts.append(f"{100 * self.loss:g} % loss")
        if self.window_nbytes < math.inf:
            parts.append(f"TCP windows of {format_nbytes(round(self.window_nbytes))}")
        if self.connections > 1:
            parts.append(f"{self.connections} connections")
        return ", ".join(parts)


def _refused(what: str) -> InputError:
    return InputError(what, where="network", remedy="correct this option; docs/distance.md describes the model")


def write_cache_nbytes(nbytes_per_s: float, rtt_seconds: float) -> float:
    """Return the unacknowledged bytes that keep a rate up over a distance: bandwidth x delay."""
    return nbytes_per_s * rtt_seconds


def closed_rate(rates: Floats, delay: float, link: float = math.inf) -> float:
    """Return the rate of N accesses that circulate between storage, a delay and a link.

    Args:
        rates: of the storage with 1 ... N accesses, per second, shape (N,); infinite: it takes no time.
        delay: seconds that each access spends away without waiting for others.
        link: accesses per second that it passes, one after the other.

    Returns:
        Accesses per second: G(N - 1) / G(N), where G is the convolution of the stations' factors (J. P. Buzen,
        "Computational algorithms for closed queueing networks", CACM 16, 1973).
    """
    n = np.arange(len(rates) + 1)
    stations = []
    if np.isfinite(rates).all():
        stations.append(np.concatenate([[0.0], np.cumsum(-np.log(rates))]))
    if delay > 0:
        stations.append(n * math.log(delay) - gammaln(n + 1))
    if link < math.inf:
        stations.append(-n * math.log(link))
    if not stations:
        return math.inf
    log_g, behind = stations[0], n[:, None] - n
    for factors in stations[1:]:
        log_g = np.logaddexp.reduce(np.where(behind >= 0, log_g + factors[behind], -math.inf), axis=1)
    return float(np.exp(log_g[-2] - log_g[-1]))


def rates_by_outstanding(nodes: Sequence[int], rates: Sequence[float], outstanding: int) -> Floats:
    """Return the rates with 1 ... ``outstanding`` accesses from those that were measured.

    The time of an access in the storage is linear between measured numbers (``access_weights``), and below the
    smallest one as there. So rates below it are lower bounds.

    Args:
        nodes: measured numbers, ascending.
        rates: at these, per second.
        outstanding: N, at most the largest node.
    """
    n = np.arange(1, outstanding + 1)
    held = np.interp(n, nodes, np.array(nodes) / np.asarray(rates))
    return np.asarray(n / held)


@dataclass(frozen=True, slots=True)
class DistantBaselines:
    """Baselines at a distance.

    Attributes:
        baselines: with the rates there.
        distance: that was added.
        notes: what the reader of a prediction must know.
    """

    baselines: Baselines
    distance: Distance
    notes: tuple[str, ...]


def baselines_at_distance(baselines: Baselines, distance: Distance) -> DistantBaselines:
    """Return what configurations would reach at a distance. The rounds keep their scatter.

    Each round of a cell has the shape of the configuration's mean rates over the depth, and its own level.

    Raises:
        InputError: the rates are those of a mix, or of a load with a rate limit that was reached.
    """
    load = baselines.measured_load
    if load.read_pct is not None or load.at_limit:
        raise InputError(
            "rates in a mix, or at the load's own limit, do not show how long an access takes",
            where=baselines.source,
            remedy="choose a load without a mix and without a limit with --load",
        )
    curves = _curves(baselines.loaded)
    depths = _depths_of_cells(baselines)
    cells = {
        (name, cell): _moved(baseline, depths.get((name, cell), _as_loaded(cell)), curves, distance)
        for (name, cell), baseline in baselines.cells.items()
    }
    loaded = {
        (name, cell): _moved(baseline, cell, curves, distance)
        for (name, cell), baseline in baselines.loaded.items()
    }
    found = replace(
        baselines, cells=cells, loaded=loaded, source=f"{baselines.source}, at {distance.text()} by the model"
    )
    return DistantBaselines(found, distance, _notes(baselines, distance, is_unknown=len(cells) > len(depths)))


_Kind = tuple[str, LoadedCell]
"""Configuration and cell, without the depth."""
_Curves = Mapping[_Kind, Mapping[int, float]]
"""Mean rate by outstanding accesses of all clients."""


def _kind(name: str, cell: LoadedCell) -> _Kind:
    return name, replace(cell, iodepth=1)


def _curves(loaded: Mapping[tuple[str, LoadedCell], Baseline]) -> _Curves:
    found: dict[_Kind, dict[int, float]] = {}
    for (name, cell), baseline in loaded.items():
        found.setdefault(_kind(name, cell), {})[cell.iodepth * baseline.n_clients] = _mean(baseline)
    return found


def _mean(baseline: Baseline) -> float:
    return math.fsum(baseline.iops) / len(baseline.iops)


def _as_loaded(cell: Cell) -> LoadedCell:
    return LoadedCell.measured(cell.size.benchmark_nbytes, cell.pattern)


def _depths_of_cells(baselines: Baselines) -> dict[tuple[str, Cell], LoadedCell]:
    """Return the load of each of the 20 cells, where it is known."""
    return {
        (name, cell.bin_cell): cell
        for (name, cell), baseline in baselines.loaded.items()
        if cell.nbytes == cell.bin_cell.size.benchmark_nbytes
        and baselines.cells.get((name, cell.bin_cell)) == baseline
    }


def _moved(baseline: Baseline, cell: LoadedCell, curves: _Curves, distance: Distance) -> Baseline:
    outstanding, own = cell.iodepth * baseline.n_clients, _mean(baseline)
    curve = {**curves.get(_kind(baseline.configuration, cell), {}), outstanding: own}
    nodes = sorted(curve)
    shape = rates_by_outstanding(nodes, [curve[n] for n in nodes], outstanding)
    iops = tuple(distance.rates(cell, shape * (rate / own)) for rate in baseline.iops)
    return replace(baseline, iops=iops)


def _notes(baselines: Baselines, distance: Distance, *, is_unknown: bool) -> tuple[str, ...]:
    notes = [
        f"what is added to the network of the measurement: {distance.text()}; round trips per access: "
        f"{distance.rtt_per_access:g}, per flush: {distance.rtt_per_flush:g}. The error of this model is not part "
        "of the intervals (docs/distance.md has it)"
    ]
    if is_unknown:
        notes.append("the number of outstanding accesses is unknown in some cells: one is assumed there")
    shallowest: dict[_Kind, int] = {}
    for name, cell in baselines.loaded:
        kind = _kind(name, cell)
        shallowest[kind] = min(cell.iodepth, shallowest.get(kind, cell.iodepth))
    if shallowest and (least := max(shallowest.values())) > 1:
        notes.append(
            f"some cells were only measured with an iodepth of {least} or more: their rates at a distance are "
            "lower bounds. Measure a load with `iodepth: 1` too"
        )
    fastest = [
        (_mean(b) * cell.nbytes, cell)
        for (name, cell), b in baselines.loaded.items()
        if name == baselines.default and cell.pattern.op is Op.WRITE
    ]
    if fastest and distance.rtt_seconds:
        rate, cell = max(fastest, key=lambda pair: pair[0])
        needed = KIB * math.ceil(write_cache_nbytes(rate, distance.rtt_seconds) / KIB)
        notes.append(
            f"a write cache of {format_nbytes(needed)} would hide this distance from {cell}, the fastest writes "
            f"of {baselines.default} (bandwidth x delay)"
        )
    return tuple(notes)
