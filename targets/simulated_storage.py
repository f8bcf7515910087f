"""The true rates of the simulated cluster: a pure model of one access under a configuration. No noise, no state.

With N accesses in flight over all clients, the time of one is that of a closed network of K equal servers (the
OSDs) and a fixed latency:

    seconds = latency + work x (1 + (N - 1) / K)        rate of all clients = N / seconds

So a rate grows with the depth, up to K / work. The work of an access is linear in its pieces and bytes. Pieces are
the parts of BlueStore blobs that it touches, on every object that it touches:

    work = pieces x seconds per piece + bytes / bandwidth + deferred bytes x seconds per deferred byte

Pieces of a write that are smaller than ``bluestore_prefer_deferred_size`` are deferred: written twice. This is why
alignment matters: a write that does not start at a blob has one more piece, and small pieces at its ends. Pieces
and deferred bytes are means over all offsets that the alignment allows.

``LAB`` has the parameters. docs/simulation.md lists the figures that they were fitted to, and the remaining error.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.units import KIB, MIB, parse_nbytes
from cephfit.core.values.cells import Op, Pattern
from cephfit.core.values.configuration import Configuration, Partition, Setting, Value


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """One class of OSDs. Times in seconds.

    Attributes:
        read_latency, write_latency: fixed time of an access, which occupies no OSD: client, network and, for
            writes, the commit, which writes in flight share.
        read_piece, write_piece: work of each piece of a blob.
        read_nbytes_per_s, write_nbytes_per_s: bandwidth of one OSD's work.
        write_object: latency that each object of a write adds to that of the first.
        deferred_per_nbyte: work of each deferred byte.
        prefer_deferred_nbytes: pieces of a write below this size are deferred, unless configured.
    """

    read_latency: float
    read_piece: float
    read_nbytes_per_s: float
    write_latency: float
    write_piece: float
    write_nbytes_per_s: float
    write_object: float
    deferred_per_nbyte: float
    prefer_deferred_nbytes: int


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of the model. Times in seconds.

    Attributes:
        hdd, ssd: the two classes.
        n_osds: of each class.
        sequential: work of a sequential access relative to a random one.
        striped_read: work of a read that touches several objects relative to one that touches one.
        journaling: time of a write to a journalled image relative to one without a journal.
        flush: latency of a flush without a client cache.
        absorbed: time of a write that the client cache absorbs.
        write_back_depth: writes that the client cache keeps in flight.
    """

    hdd: DeviceClass
    ssd: DeviceClass
    n_osds: int
    sequential: float
    striped_read: float
    journaling: float
    flush: float
    absorbed: float
    write_back_depth: int


LAB = Parameters(
    hdd=DeviceClass(
        read_latency=0.0002,
        read_piece=0.0015,
        read_nbytes_per_s=500 * MIB,
        write_latency=0.0185,
        write_piece=0.0020,
        write_nbytes_per_s=90 * MIB,
        write_object=0.0063,
        deferred_per_nbyte=0.41 / MIB,
        prefer_deferred_nbytes=64 * KIB,
    ),
    ssd=DeviceClass(
        read_latency=0.0002,
        read_piece=0.0003,
        read_nbytes_per_s=1000 * MIB,
        write_latency=0.0033,
        write_piece=0.0004,
        write_nbytes_per_s=1000 * MIB,
        write_object=0.0004,
        deferred_per_nbyte=0.0,
        prefer_deferred_nbytes=0,
    ),
    n_osds=2,
    sequential=0.9,
    striped_read=0.9,
    journaling=2.1,
    flush=0.0005,
    absorbed=0.0003,
    write_back_depth=2,
)
"""Fitted to the one-machine lab: two hosts, each with one throttled OSD of either class. Chosen without a fit:
``write_object`` of ssd, ``sequential`` and the last three."""

DEFAULT_COPIES = 2
_OBJECT_NBYTES = 4 * MIB
_BLOB_NBYTES = 64 * KIB
_CACHE_DIRTY_NBYTES = 24 * MIB
"""Defaults of the pool's ``size``, RBD's object size, ``bluestore_max_blob_size`` and ``rbd_cache_max_dirty``."""
CLASSES_OF_RULES = {"hdd": ("hdd",), "ssd": ("ssd",), "hybrid": ("ssd", "hdd")}
"""CRUSH rules of the simulated cluster: device class of all copies, or of the first one and of the others."""
_SMALL_CACHE_NBYTES = 64 * MIB
_MISSES = 1.8
"""Work of reads up to 32K where ``bluestore_cache_size`` is below 64 MiB. Not measured: assumed."""
_HIT_NBYTES = 32 * KIB

EFFECTS: dict[str, str] = {
    "bluestore_max_blob_size": "accesses are cut into other pieces",
    "bluestore_max_blob_size_hdd": "accesses on hdd are cut into other pieces",
    "bluestore_max_blob_size_ssd": "accesses on ssd are cut into other pieces",
    "bluestore_prefer_deferred_size": "other pieces of writes are written twice",
    "bluestore_prefer_deferred_size_hdd": "other pieces of writes on hdd are written twice",
    "bluestore_cache_size": "small reads miss the cache",
    "size": "every copy is written",
    "crush_rule": "copies on faster disks",
    "stripe_unit": "one access touches more objects",
    "stripe_count": "one access touches more objects",
    "object_size": "one large access touches more objects",
    "features": "journalled images write twice",
    "rbd_cache": "the client cache absorbs writes that are not flushed",
    "rbd_cache_policy": "a cache that writes through absorbs nothing",
    "rbd_cache_max_dirty": "the client cache absorbs more writes, or fewer",
}
"""Settings with an effect in the simulation, and why. All others have none, whatever they do on a real cluster."""


@dataclass(frozen=True, slots=True)
class Access:
    """One kind of access.

    Attributes:
        nbytes: size; mean sizes of a profile are rounded to whole blocks of 512 bytes.
        pattern: op, and whether random.
        depth: accesses that each client keeps in flight; at least 1, also fractional.
        align_nbytes: offsets are multiples of this many bytes; 0: of ``nbytes``.
        sync: as in ``Load``: empty, ``fsync``, ``dsync`` or ``every N``.
    """

    nbytes: int
    pattern: Pattern
    depth: float = 1.0
    align_nbytes: int = 0
    sync: str = ""


@dataclass(frozen=True, slots=True)
class Storage:
    """A configuration as the model needs it.

    Attributes:
        reads, writes: class that serves reads, and the slowest class that has a copy.
        read_blob_nbytes, write_blob_nbytes: maximum blob size there.
        deferred_below_nbytes: pieces of writes below this size are deferred.
        object_nbytes: of the image's objects.
        stripe_nbytes: stripe unit.
        stripe_count: objects in a stripe.
        copies: of the pool.
        misses: factor of the work of small reads.
        write_factor: factor of the time of writes.
        dirty_nbytes: that the client cache absorbs; 0 without one.
    """

    reads: DeviceClass
    writes: DeviceClass
    read_blob_nbytes: int = _BLOB_NBYTES
    write_blob_nbytes: int = _BLOB_NBYTES
    deferred_below_nbytes: int = 0
    object_nbytes: int = _OBJECT_NBYTES
    stripe_nbytes: int = _OBJECT_NBYTES
    stripe_count: int = 1
    copies: float = DEFAULT_COPIES
    misses: float = 1.0
    write_factor: float = 1.0
    dirty_nbytes: int = 0


def effect_of(setting: Setting) -> str:
    """Return why a setting has a simulated effect; empty if it has none."""
    return "" if setting.partition is Partition.GREATER else EFFECTS.get(setting.key, "")


def storage_of(configuration: Configuration, parameters: Parameters = LAB) -> Storage:
    """Return what a configuration means for the model.

    Raises:
        InputError: a setting requires a number or size, and its value is neither.
    """
    values = {s.key: s for s in configuration.settings if effect_of(s)}

    def number(*keys: str, default: float) -> float:
        """The first of the settings that is set, the most special first; 0 of a blob size is Ceph's default."""
        found = next((values[key] for key in keys if key in values), None)
        return default if found is None else _number(found)

    rule = str(values["crush_rule"].value) if "crush_rule" in values else ""
    reads = parameters.ssd if rule in ("ssd", "hybrid") else parameters.hdd
    writes = parameters.ssd if rule == "ssd" else parameters.hdd

    def of_class(device: DeviceClass, key: str) -> tuple[str, str]:
        return f"{key}_{'ssd' if device is parameters.ssd else 'hdd'}", key

    object_nbytes = int(number("object_size", default=_OBJECT_NBYTES))
    dirty = number("rbd_cache_max_dirty", default=_CACHE_DIRTY_NBYTES)
    writes_through = "rbd_cache_policy" in values and values["rbd_cache_policy"].value == "writethrough"
    is_cached = "rbd_cache" in values and _truth(values["rbd_cache"].value) and not writes_through
    is_journalled = "features" in values and "journaling" in str(values["features"].value)
    default_deferred = writes.prefer_deferred_nbytes
    return Storage(
        reads=reads,
        writes=writes,
        read_blob_nbytes=int(number(*of_class(reads, "bluestore_max_blob_size"), default=0)) or _BLOB_NBYTES,
        write_blob_nbytes=int(number(*of_class(writes, "bluestore_max_blob_size"), default=0)) or _BLOB_NBYTES,
        deferred_below_nbytes=int(
            number(*of_class(writes, "bluestore_prefer_deferred_size"), default=default_deferred)
        ),
        object_nbytes=object_nbytes,
        stripe_nbytes=min(object_nbytes, int(number("stripe_unit", default=object_nbytes))),
        stripe_count=int(number("stripe_count", default=1)),
        copies=number("size", default=DEFAULT_COPIES),
        misses=_MISSES if number("bluestore_cache_size", default=math.inf) < _SMALL_CACHE_NBYTES else 1.0,
        write_factor=parameters.journaling if is_journalled else 1.0,
        dirty_nbytes=int(dirty) if is_cached else 0,
    )


def iops(
    configuration: Configuration,
    access: Access,
    *,
    n_clients: int = 1,
    window_seconds: tuple[float, float] = (math.inf, 0.0),
    parameters: Parameters = LAB,
) -> float:
    """Return the true rate of one of ``n_clients`` equal clients.

    Args:
        configuration: of the cluster.
        access: what every client does.
        n_clients: concurrent clients.
        window_seconds: when the measurement begins, counted from an empty client cache, and how long it takes.
            The default is the steady state, with a full cache.
        parameters: of the model.

    Raises:
        InputError: a setting requires a number or size, and its value is neither; or ``sync`` is unknown.
    """
    storage = storage_of(configuration, parameters)
    cost = _Cost(storage, access, parameters)
    if access.pattern.op is Op.READ or not storage.dirty_nbytes:
        every = 0.0 if access.pattern.op is Op.READ else flushes_per_write(access.sync)
        return access.depth / (cost.seconds(n_clients * access.depth) + every * parameters.flush)
    every = flushes_per_write(access.sync)
    if every:
        # The writes between two flushes are absorbed, and written back together by the flush.
        together = min(max(access.depth, 1 / every), max(access.depth, parameters.write_back_depth))
        written = cost.seconds(n_clients * together) / together
        return 1 / (parameters.absorbed + written + every * parameters.flush)
    depth = max(access.depth, parameters.write_back_depth)
    steady = depth / cost.seconds(n_clients * depth)
    absorbing = 1 / parameters.absorbed
    if steady >= absorbing:
        return absorbing
    start, length = window_seconds
    full_at = storage.dirty_nbytes / access.nbytes / (absorbing - steady)
    before = min(max(0.0, full_at - start), length)
    return steady if not before else (absorbing * before + steady * (length - before)) / length


def flushes_per_write(sync: str) -> float:
    """Return flushes per write of a load's ``sync``.

    Raises:
        InputError: neither empty, ``fsync``, ``dsync`` nor ``every N``.
    """
    if not sync:
        return 0.0
    if sync in ("fsync", "dsync"):
        return 1.0
    word, _, number = sync.partition(" ")
    if word == "every" and number.isdecimal() and int(number):
        return 1 / int(number)
    raise InputError(f"the simulation cannot write with sync: {sync}", remedy="fsync, dsync or every N")


class _Cost:
    """Latency and work of one access on a storage."""

    def __init__(self, storage: Storage, access: Access, parameters: Parameters) -> None:
        is_read = access.pattern.op is Op.READ
        parts = parts_of(
            access.nbytes,
            access.align_nbytes or access.nbytes,
            storage.read_blob_nbytes if is_read else storage.write_blob_nbytes,
            0 if is_read else storage.deferred_below_nbytes,
            storage.object_nbytes,
            storage.stripe_nbytes,
            storage.stripe_count,
        )
        position = 1.0 if access.pattern.is_random else parameters.sequential
        if is_read:
            device, self._servers = storage.reads, float(parameters.n_osds)
            pieces = position * parts.pieces * device.read_piece
            if access.nbytes <= _HIT_NBYTES:
                pieces *= storage.misses
            # Objects are read in parallel; the share of accesses that touch only one is not.
            spread = 1 - (1 - parameters.striped_read) * min(1.0, parts.objects - 1)
            self._latency, self._work = (
                device.read_latency,
                pieces * spread + access.nbytes / device.read_nbytes_per_s,
            )
            return
        device = storage.writes
        # Every copy is written, so that a write occupies as many OSDs as there are copies.
        self._servers = max(1.0, parameters.n_osds / storage.copies)
        factor = storage.write_factor * (0.4 + 0.6 * storage.copies / DEFAULT_COPIES)
        self._latency = factor * (device.write_latency + (parts.objects - 1) * device.write_object)
        self._work = factor * (
            position * parts.pieces * device.write_piece
            + access.nbytes / device.write_nbytes_per_s
            + parts.deferred_nbytes * device.deferred_per_nbyte
        )

    def seconds(self, in_flight: float) -> float:
        """Time of an access while ``in_flight`` of them are outstanding."""
        return self._latency + self._work * (1 + (in_flight - 1) / self._servers)


@dataclass(frozen=True, slots=True)
class Parts:
    """Means over offsets: objects and blob pieces that an access touches, and bytes in small pieces."""

    objects: float
    pieces: float
    deferred_nbytes: float


_MOST_OFFSETS = 8192


@lru_cache(maxsize=4096)
def parts_of(
    nbytes: int, align: int, blob: int, deferred_below: int, object_nbytes: int, unit: int, count: int
) -> Parts:
    """Count the parts of an access of ``nbytes`` at multiples of ``align``, all in bytes.

    The image's stripes go round ``count`` objects in units of ``unit``. In each object of a set the access is one
    extent, which is cut at the ends of objects and blobs.
    """
    round_nbytes = unit * count
    repeat = math.lcm(object_nbytes * count, blob)  # offsets repeat after this many bytes
    step = math.gcd(align, repeat)
    n = repeat // step
    offsets = np.unique(np.linspace(0, n - 1, min(n, _MOST_OFFSETS)).astype(np.int64)) * step
    objects = pieces = deferred = 0.0
    for place in range(count):
        start, end = (_local(at, place, unit, round_nbytes) for at in (offsets, offsets + nbytes))
        touched = end > start
        objects += float(np.mean(np.where(touched, (end - 1) // object_nbytes - start // object_nbytes + 1, 0)))
        grid = min(blob, object_nbytes)
        first, last = start // grid, (end - 1) // grid
        pieces += float(np.mean(np.where(touched, last - first + 1, 0)))
        alone = touched & (first == last)
        head, tail = (first + 1) * grid - start, end - last * grid
        several = touched & ~alone
        small = np.where(alone & (end - start < deferred_below), end - start, 0)
        small = small + np.where(several & (head < deferred_below), head, 0)
        small = small + np.where(several & (tail < deferred_below), tail, 0)
        if grid < deferred_below:
            small = small + np.where(several, (last - first - 1) * grid, 0)
        deferred += float(np.mean(small))
    return Parts(objects, pieces, deferred)


def _local(
    at: np.ndarray[tuple[int], np.dtype[np.int64]], place: int, unit: int, round_nbytes: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Bytes of one object place (of those in a stripe) before image offsets."""
    return at // round_nbytes * unit + np.clip(at % round_nbytes - place * unit, 0, unit)


def _number(setting: Setting) -> float:
    try:
        return float(setting.value)
    except ValueError:
        pass
    try:
        return float(parse_nbytes(str(setting.value)))
    except InputError as error:
        raise InputError(f"{setting}: {error.what}", remedy=error.remedy) from None


def _truth(value: Value) -> bool:
    return str(value).lower() in ("true", "1", "yes", "on")
