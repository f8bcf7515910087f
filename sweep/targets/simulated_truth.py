"""The truth behind the simulated target: a service-time model of one I/O, per cell and configuration.

Nothing of it was measured on the user's cluster. It is shaped after a one-machine lab of hard disks limited to 300
I/Os and 100 MiB per second, so that sweeps of it look like sweeps, and known exactly, so that what comes
out at the end can be held against what went in.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from cephfit.cells import Cell, Op
from cephfit.configuration import Configuration, Partition, Setting, Value
from cephfit.errors import InputError
from cephfit.units import KIB, MIB, NS_PER_S, parse_nbytes

_POSITIONING_SECONDS = 1 / 300
_NBYTES_PER_S = 100 * MIB
_SEQUENTIAL_POSITIONING = 0.35
"""Share of the positioning time that an I/O right after the last one still costs."""
_COPIES = 2
_SSD_SPEEDUP = 6.0


@dataclass(frozen=True, slots=True)
class Effect:
    """What one setting does to the time of an I/O.

    Attributes:
        key: the setting's.
        factor: time is multiplied by ``factor(value, cell)``; 1 changes nothing.
        why: one sentence for people.
    """

    key: str
    factor: Callable[[Value, Cell], float]
    why: str


def _number(value: Value) -> float:
    try:
        return float(value)
    except ValueError:
        return float(parse_nbytes(str(value)))


def _large_blobs(value: Value, cell: Cell) -> float:
    """Blobs of 64K cut large I/Os into pieces; those of 512K nearly do not."""
    if cell.size.benchmark_nbytes < MIB:
        return 1.0
    return (0.25 if cell.pattern.op is Op.WRITE else 0.45) if _number(value) >= 512 * KIB else 1.0


def _deferred(value: Value, cell: Cell) -> float:
    small = cell.size.benchmark_nbytes <= 32 * KIB
    return 0.72 if _number(value) == 0 and small and cell.pattern.op is Op.WRITE else 1.0


def _cache(value: Value, cell: Cell) -> float:
    hits = cell.pattern.op is Op.READ and cell.size.benchmark_nbytes <= 32 * KIB
    return 1.8 if _number(value) < 64 * MIB and hits else 1.0


def _copies(value: Value, cell: Cell) -> float:
    return (0.4 + 0.6 * _number(value) / _COPIES) if cell.pattern.op is Op.WRITE else 1.0


def _rule(value: Value, cell: Cell) -> float:
    """``hybrid`` reads from its primary on an SSD; a write waits for the hard disk too."""
    if value == "ssd":
        return 1 / _SSD_SPEEDUP
    return 1 / _SSD_SPEEDUP if value == "hybrid" and cell.pattern.op is Op.READ else 1.0


def _object_size(value: Value, cell: Cell) -> float:
    """Small objects spread one large I/O over many disks."""
    large = cell.size.benchmark_nbytes >= MIB
    return 0.4 if large and _number(value) <= 256 * KIB else 1.0


def _stripes(value: Value, cell: Cell) -> float:
    """One large I/O is spread over several objects, and so over several disks."""
    return 0.6 if cell.size.benchmark_nbytes >= MIB and _number(value) < MIB else 1.0


def _features(value: Value, cell: Cell) -> float:
    """A journalled image writes everything twice."""
    return 2.1 if "journaling" in str(value) and cell.pattern.op is Op.WRITE else 1.0


EFFECTS: dict[str, Effect] = {
    effect.key: effect
    for effect in (
        Effect("bluestore_max_blob_size_hdd", _large_blobs, "large I/Os are cut into fewer pieces"),
        Effect("bluestore_prefer_deferred_size_hdd", _deferred, "small writes go straight to the disk"),
        Effect("bluestore_cache_size", _cache, "small reads miss the cache"),
        Effect("size", _copies, "every copy is written"),
        Effect("crush_rule", _rule, "copies on faster disks"),
        Effect("stripe_unit", _stripes, "more disks work on one I/O"),
        Effect("features", _features, "journalled images write twice"),
        Effect("object_size", _object_size, "more disks work on one I/O"),
    )
}
"""Settings that do something here. All others do nothing, whatever they would do on a real cluster."""


def effect_of(setting: Setting) -> Effect | None:
    """What a setting does here; None if nothing."""
    return None if setting.partition is Partition.GREATER else EFFECTS.get(setting.key)


def service_seconds(configuration: Configuration, cell: Cell) -> float:
    """Mean time of one I/O of one client at depth 1, in seconds.

    Raises:
        InputError: a setting's value is no number or size where one is needed.
    """
    positioning = _POSITIONING_SECONDS * (1.0 if cell.pattern.is_random else _SEQUENTIAL_POSITIONING)
    transfer = cell.size.benchmark_nbytes / _NBYTES_PER_S
    seconds = positioning + transfer * (1.3 if cell.pattern.op is Op.WRITE else 1.0)
    for setting in configuration.settings:
        if effect := effect_of(setting):
            seconds *= _factor(effect, setting, cell)
    return seconds


def true_iops(configuration: Configuration, cell: Cell, *, n_clients: int, iodepth: int) -> float:
    """I/Os per second of one client among ``n_clients``: four disks serve what is in flight, evenly shared."""
    in_flight = n_clients * iodepth
    busy = min(4.0, math.pow(in_flight, 0.6))
    return busy / service_seconds(configuration, cell) / n_clients


def run_ns(seconds: float) -> int:
    """Seconds as whole ns."""
    return round(seconds * NS_PER_S)


def _factor(effect: Effect, setting: Setting, cell: Cell) -> float:
    try:
        return effect.factor(setting.value, cell)
    except InputError as error:
        raise InputError(f"{setting}: {error.what}", remedy=error.remedy) from None
