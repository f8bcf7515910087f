"""Read the section ``measurement`` of a sweep file: cells, loads, and how every cell is measured."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cephfit.core.units import LBN_NBYTES, format_nbytes
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Op, Pattern
from cephfit.core.values.measurement import (
    DSYNC,
    FIO,
    FSYNC,
    MICRO,
    RADOS_BENCH,
    RBD_BENCH,
    RBD_OBJECT_NBYTES,
    CacheCondition,
    Load,
    Measurement,
    Steady,
)
from cephfit.core.yaml_lines import MOST, Located
from cephfit.sweep.declaration.file_operations_part import (
    FILE_WORDS,
    each_once,
    read_file_cells,
    read_file_set,
    refuse_unknown_load,
)
from cephfit.sweep.declaration.file_settings import NAME

SHAPE = ("iodepth", "clients", "read_pct", "rate_iops", "rate", "align", "sync")
"""Keys of a load that ``measurement`` has too."""
MOST_CLIENTS = 1024
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")
_OWN_SIZE = "own"
_NO_SYNC = "none"
_EVERY = re.compile(r"every ([1-9][0-9]{0,8})")
_LOAD = (*SHAPE, "sizes", "patterns", "cells")


@dataclass(frozen=True, slots=True)
class Shape:
    """The values of a load in a file; None for absent keys. See ``measurement.Load``."""

    iodepth: int | None
    n_clients: int | None
    read_pct: int | None
    rate_iops: int | None
    rate_nbytes_per_s: int | None
    align_nbytes: int | None
    sync: str | None


def read_cells(parts: Mapping[str, Located]) -> tuple[Cell, ...]:
    """Return the cells that ``sizes`` and ``patterns``, or ``cells``, name, in the order of ``CELLS``; all where
    none of them is given.

    Raises:
        InputError: names file and line.
    """
    if "cells" in parts:
        return _cells_by_name(parts, CELLS)
    sizes = _words(parts.get("sizes"), "size", [b.name for b in SIZE_BINS])
    patterns = _words(parts.get("patterns"), "pattern", list(Pattern))
    return tuple(c for c in CELLS if c.size.name in sizes and c.pattern.value in patterns)


def read_shape(parts: Mapping[str, Located]) -> Shape:
    """Return the values of the keys in ``SHAPE``.

    Raises:
        InputError: names file and line.
    """
    n_clients = parts["clients"].whole(least=1, most=MOST_CLIENTS) if "clients" in parts else None
    read_pct = parts["read_pct"].whole() if "read_pct" in parts else None
    if read_pct is not None and not 1 <= read_pct <= 99:
        parts["read_pct"].refuse(
            f"a mix has 1 to 99 per cent of reads, not {read_pct}",
            "remove it: the patterns read and randread only read, write and randwrite only write",
        )
    if "rate" in parts and "rate_iops" in parts:
        parts["rate"].refuse("rate and rate_iops limit the same thing", "keep one of the two")
    rate = parts["rate"].nbytes() if "rate" in parts else None
    if rate is not None and rate < 1:
        parts["rate"].refuse("a rate must be more than zero", "write bytes per second of each client, like 10M")
    return Shape(
        iodepth=parts["iodepth"].whole(least=1) if "iodepth" in parts else None,
        n_clients=n_clients,
        read_pct=read_pct,
        rate_iops=parts["rate_iops"].whole(least=1) if "rate_iops" in parts else None,
        rate_nbytes_per_s=rate,
        align_nbytes=_alignment(parts["align"]) if "align" in parts else None,
        sync=_sync(parts["sync"]) if "sync" in parts else None,
    )


def _alignment(entry: Located) -> int:
    """Return an alignment in bytes; 0 for that of each access to its own size."""
    if entry.value == _OWN_SIZE:
        return 0
    nbytes = entry.nbytes()
    if nbytes < LBN_NBYTES or nbytes & (nbytes - 1):
        entry.refuse(
            f"accesses cannot be aligned to {entry.value}",
            f"write a power of two from {LBN_NBYTES} on, such as 4K, or {_OWN_SIZE} for accesses that start at "
            "multiples of their own size",
        )
    return nbytes


def _sync(entry: Located) -> str:
    """Return how writes are made durable, as in ``Load.sync``."""
    text = str(entry.value)
    if text == _NO_SYNC:
        return ""
    every = _EVERY.fullmatch(text)
    if text not in (FSYNC, DSYNC) and every is None:
        entry.refuse(
            f"{text!r} is not a way to make writes durable",
            f"write {FSYNC} (a flush after each write), {DSYNC} (each write is durable when it ends), every 8 (a "
            f"flush after 8 writes), or {_NO_SYNC}",
        )
    return FSYNC if every is not None and int(every[1]) == 1 else text


def read_loads(entry: Located | None, measurement: Measurement) -> tuple[Load, ...]:
    """Return the loads of the section ``measurement.loads``, which maps names to shapes.

    Args:
        entry: the section; None where there is none.
        measurement: the measurement with its own load, from which the loads differ.

    Raises:
        InputError: names file and line.
    """
    if entry is None:
        return ()
    loads: list[Load] = []
    for name, body in entry.mapping().items():
        if not NAME.fullmatch(name):
            body.refuse(
                f"{name!r} cannot be a load's name", "use at most 40 of a to z, A to Z, 0 to 9, -, _ and ."
            )
        parts = body.mapping(_LOAD)
        if not any(word in parts for word in SHAPE):
            body.refuse(
                f"load {name} does not differ from the measurement's own load", f"add one of {', '.join(SHAPE)}"
            )
        _keep_one_rate(parts, measurement, body)
        shape = read_shape(parts)
        load = Load(
            name,
            shape.iodepth,
            shape.n_clients,
            shape.read_pct,
            shape.rate_iops,
            shape.rate_nbytes_per_s,
            _own_cells(parts, measurement, body),
            shape.align_nbytes,
            shape.sync,
        )
        _refuse_twin(load, loads, measurement, body)
        loads.append(_with_cells_it_changes(load, parts, measurement, body))
    return tuple(loads)


def _own_cells(parts: Mapping[str, Located], measurement: Measurement, body: Located) -> tuple[Cell, ...] | None:
    if "cells" in parts:
        return _cells_by_name(parts, measurement.cells, " of this measurement")
    if "sizes" not in parts and "patterns" not in parts:
        return None
    sizes = dict.fromkeys(c.size.name for c in measurement.cells)
    patterns = dict.fromkeys(c.pattern.value for c in measurement.cells)
    own_sizes = _words(parts.get("sizes"), "size of this measurement", list(sizes))
    own_patterns = _words(parts.get("patterns"), "pattern of this measurement", list(patterns))
    cells = tuple(c for c in measurement.cells if c.size.name in own_sizes and c.pattern.value in own_patterns)
    if not cells:
        body.refuse("this load has no cells")
    return cells


def _cells_by_name(parts: Mapping[str, Located], right: tuple[Cell, ...], more: str = "") -> tuple[Cell, ...]:
    """Return the cells that ``cells`` names, in the order of ``right``."""
    if "sizes" in parts or "patterns" in parts:
        parts["cells"].refuse("cells are given next to sizes or patterns", "keep either cells, or the other two")
    named = _words(parts["cells"], f"cell{more}", [str(cell) for cell in right])
    return tuple(cell for cell in right if str(cell) in named)


def _with_cells_it_changes(
    load: Load, parts: Mapping[str, Located], measurement: Measurement, body: Located
) -> Load:
    """Omit the cells of a load that would be run as under the measurement's own load, or without its ``sync``.

    An alignment changes nothing in cells of its size or less, and ``sync`` concerns only writes.
    """
    own, full = measurement.under(""), replace(measurement, loads=(load,)).under(load.name)
    cells = full.cells
    if load.sync and full.read_pct is None:
        for word in ("patterns", "cells"):
            if word in parts and any(c.pattern.op is Op.READ for c in cells):
                parts[word].refuse(
                    f"load {load.name} has sync: {load.sync}, which concerns only writes, and {word} that only "
                    "read",
                    f"name write and randwrite only, or remove {word}: then only writes are measured",
                )
        cells = tuple(c for c in cells if c.pattern.op is Op.WRITE)
    cells = tuple(c for c in cells if full.changes(own, c))
    if not cells:
        body.refuse(
            f"load {load.name} changes nothing in any cell",
            "an alignment changes cells with a larger size, and sync changes cells that write; the measurement "
            "needs such cells, or remove this load",
        )
    return load if cells == full.cells else replace(load, cells=cells)


def _keep_one_rate(parts: Mapping[str, Located], measurement: Measurement, body: Located) -> None:
    if ("rate" in parts and measurement.rate_iops) or ("rate_iops" in parts and measurement.rate_nbytes_per_s):
        body.refuse(
            "the measurement limits the rate in another unit than this load, so both limits would apply",
            "write both as rate, or both as rate_iops",
        )


def _refuse_twin(load: Load, others: list[Load], measurement: Measurement, body: Located) -> None:
    """Refuse a load with the shape of another: two names would mean the same runs."""
    shapes = {"the measurement itself": measurement.shape()}
    for other in others:
        shapes[other.name] = _full_shape(other, measurement)
    twin = next((name for name, shape in shapes.items() if shape == _full_shape(load, measurement)), None)
    if twin is not None:
        body.refuse(f"load {load.name} is the same as {twin}", "remove it, or change one of its values")


def _full_shape(load: Load, measurement: Measurement) -> dict[str, object]:
    """Return all values of a load, with the measurement's values for absent ones."""
    return replace(measurement, loads=(load,)).under(load.name).shape()


def _words(entry: Located | None, what: str, right: list[str]) -> list[str]:
    """Return the words of a list, all of ``right`` where the list is absent."""
    return list(right) if entry is None else each_once(entry, what, right)


_MEASUREMENT = (
    *("sizes", "patterns", "cells", "volume_size", "repeats", "ramp_seconds", "run_seconds", "engine", "ioengine"),
    *("direct", "cache", "seed", "max_attempts", *SHAPE, "loads"),
    *("steady", "settle_seconds", "new_volumes", *FILE_WORDS),
)
MOST_REPEATS = 1000
"""Hundreds of times a usual number: a larger one is a typing error, and its plan alone would take hours."""
_REQUIRED = ("clients", "volume_size", "repeats", "run_seconds", "seed")
_SYNCHRONOUS = ("sync", "psync", "pvsync", "pvsync2")
_LIBRBD = "rbd"
_THREADS = "threads"
"""What engine ``micro`` has instead of an engine of fio: ``iodepth`` threads with one operation each."""
_IOENGINES = ("libaio", "io_uring", "posixaio", _LIBRBD, *_SYNCHRONOUS)
_ENGINES = (FIO, RADOS_BENCH, RBD_BENCH, MICRO)


def read_measurement(entry: Located, *, stored: bool = False) -> Measurement:
    """Return the section ``measurement``.

    Args:
        entry: the section.
        stored: whether it is of a stored run; its volumes may have any size.

    Raises:
        InputError: names file and line.
    """
    parts = entry.mapping(_MEASUREMENT, required=_REQUIRED)
    engine = parts["engine"].word(_ENGINES) if "engine" in parts else FIO
    if engine != MICRO:
        for word in FILE_WORDS:
            if word in parts:
                parts[word].refuse(
                    f"{word} concerns operations on files, which {engine} has not", "add engine: micro"
                )
    cells = read_file_cells(parts) if engine == MICRO else read_cells(parts)
    shape = read_shape(parts)
    volume_nbytes = _volume_nbytes(parts["volume_size"], cells, stored=stored)
    own = Measurement(
        cells=cells,
        n_clients=shape.n_clients or 1,
        volume_nbytes=volume_nbytes,
        repeats=parts["repeats"].whole(least=1, most=MOST if stored else MOST_REPEATS),
        ramp_seconds=parts["ramp_seconds"].seconds() if "ramp_seconds" in parts else 0.0,
        run_seconds=parts["run_seconds"].seconds(positive=True),
        ioengine=_ioengine(parts, engine),
        iodepth=shape.iodepth or 1,
        direct=parts["direct"].truth() if "direct" in parts else True,
        cache=CacheCondition(parts["cache"].word(list(CacheCondition)))
        if "cache" in parts
        else CacheCondition.COLD,
        seed=parts["seed"].whole(),
        max_attempts=parts["max_attempts"].whole(least=1) if "max_attempts" in parts else 3,
        engine=engine,
        read_pct=shape.read_pct,
        rate_iops=shape.rate_iops,
        rate_nbytes_per_s=shape.rate_nbytes_per_s,
        align_nbytes=shape.align_nbytes or 0,
        sync=shape.sync or "",
        steady=_steady(parts["steady"], engine) if "steady" in parts else None,
        settle_seconds=parts["settle_seconds"].seconds() if "settle_seconds" in parts else 0.0,
        new_volumes=parts["new_volumes"].truth() if "new_volumes" in parts else False,
        files=read_file_set(parts, cells, volume_nbytes) if engine == MICRO else None,
    )
    if own.steady is not None and own.steady.limit_seconds < own.ramp_seconds + own.run_seconds:
        parts["steady"].refuse(
            f"limit_seconds {own.steady.limit_seconds:g} is less than one run of "
            f"{own.ramp_seconds + own.run_seconds:g} s",
            "write several times that",
        )
    measurement = replace(own, loads=read_loads(parts.get("loads"), own))
    for name in measurement.load_names:
        place: Mapping[str, Located] = parts["loads"].mapping()[name].mapping() if name else parts
        _refuse_what_the_engine_lacks(measurement.under(name), place)
        _require_capacity_for_alignment(measurement.under(name), parts["volume_size"])
    return measurement


def _volume_nbytes(entry: Located, cells: Iterable[Cell], *, stored: bool) -> int:
    """Return the size of a volume, which holds whole blocks of every cell."""
    volume_nbytes = entry.nbytes()
    # Filling and warming transfer whole objects of RBD's default size, for all cell sizes.
    block = max([0 if stored else RBD_OBJECT_NBYTES, *(c.size.benchmark_nbytes for c in cells)])
    if volume_nbytes < block or volume_nbytes % block:
        entry.refuse(
            f"a volume of {entry.value} does not hold whole blocks of {format_nbytes(block)}",
            f"make it a multiple of {format_nbytes(block)}",
        )
    return volume_nbytes


def _steady(entry: Located, engine: str) -> Steady:
    """Return the section ``measurement.steady``."""
    if engine != FIO:
        entry.refuse(f"{engine} has no ramp, so it cannot repeat a run with a longer one", "remove it")
    parts = entry.mapping(("within", "limit_seconds"), required=("within", "limit_seconds"))
    percent = _PERCENT.fullmatch(str(parts["within"].value))
    if percent is None or not 0 < float(percent[1]) <= 100:
        parts["within"].refuse(
            f"within must be a percentage above 0, up to 100, not {parts['within'].value!r}", "such as 10%"
        )
    return Steady(float(percent[1]) / 100, parts["limit_seconds"].seconds(positive=True))


def _ioengine(parts: Mapping[str, Located], engine: str) -> str:
    """Return fio's ioengine. The other engines use librados and librbd, like fio's engine ``rbd``."""
    if engine == MICRO:
        return _THREADS
    if engine == FIO:
        return parts["ioengine"].word(_IOENGINES) if "ioengine" in parts else "libaio"
    if "ioengine" in parts and parts["ioengine"].word(_IOENGINES) != _LIBRBD:
        parts["ioengine"].refuse(f"ioengine is an option of fio, but the engine is {engine}", "remove it")
    return _LIBRBD


def _require_capacity_for_alignment(measurement: Measurement, volume_size: Located) -> None:
    """Refuse volumes in which an access that is not aligned to its own size has only one place."""
    block = max((c.size.benchmark_nbytes for c in measurement.cells), default=0)
    if measurement.align_nbytes and measurement.align_nbytes < block and measurement.volume_nbytes < 2 * block:
        volume_size.refuse(
            f"a volume of {volume_size.value} has no room for accesses of {format_nbytes(block)} that are aligned "
            f"to {format_nbytes(measurement.align_nbytes)}",
            f"make it at least {format_nbytes(2 * block)}",
        )


def _refuse_what_the_engine_lacks(measurement: Measurement, parts: Mapping[str, Located]) -> None:
    """Refuse values of a load, or of the measurement itself, that this engine cannot honour."""
    if measurement.ioengine in _SYNCHRONOUS and measurement.iodepth != 1 and "iodepth" in parts:
        parts["iodepth"].refuse(
            f"the synchronous engine {measurement.ioengine} has one I/O in flight, so iodepth "
            f"{measurement.iodepth} is not possible",
            "write iodepth: 1, or an asynchronous engine such as libaio",
        )
    if measurement.sync == DSYNC and measurement.ioengine == _LIBRBD and measurement.engine == FIO:
        place = parts.get("sync", parts.get("ioengine"))
        if place is not None:
            place.refuse(
                "librbd has no writes that are durable when they end, so ioengine: rbd cannot do sync: dsync",
                f"write sync: {FSYNC}, or ioengine: libaio with clients that have block devices",
            )
    if measurement.engine == FIO:
        return
    if measurement.engine == MICRO:
        refuse_unknown_load(measurement, parts)
        return
    for word in ("read_pct", "rate", "rate_iops", "align", "sync", "direct"):
        if word in parts:
            parts[word].refuse(f"{measurement.engine} does not support {word}", "remove it, or use engine: fio")
    if measurement.ramp_seconds and "ramp_seconds" in parts:
        parts["ramp_seconds"].refuse(
            f"{measurement.engine} has no ramp: it measures from its first I/O", "write 0, or use engine: fio"
        )
