"""The cells and loads of a sweep file, and how every cell is measured.

Which cells a sweep file measures, and under which loads.

The section of a sweep file that says how every cell is measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cephfit.core.units import format_nbytes
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Pattern
from cephfit.core.values.measurement import (
    FIO,
    RADOS_BENCH,
    RBD_BENCH,
    RBD_OBJECT_NBYTES,
    CacheCondition,
    Load,
    Measurement,
)
from cephfit.core.yaml_lines import MOST, Located, nearest
from cephfit.sweep.declaration.file_settings import NAME

SHAPE = ("iodepth", "clients", "read_pct", "rate_iops", "rate")
"""Words of a load that ``measurement`` has too."""
MOST_CLIENTS = 1024
_LOAD = (*SHAPE, "sizes", "patterns")


@dataclass(frozen=True, slots=True)
class Shape:
    """The words of a load as they stand in a file; None where they do not. See ``model.Load``."""

    iodepth: int | None
    n_clients: int | None
    read_pct: int | None
    rate_iops: int | None
    rate_nbytes_per_s: int | None


def read_cells(parts: Mapping[str, Located]) -> tuple[Cell, ...]:
    """The cells that ``sizes`` and ``patterns`` name, in the vocabulary's order; all where they are left out.

    Raises:
        InputError: names file and line.
    """
    sizes = _words(parts.get("sizes"), "size", [b.name for b in SIZE_BINS])
    patterns = _words(parts.get("patterns"), "pattern", list(Pattern))
    return tuple(c for c in CELLS if c.size.name in sizes and c.pattern.value in patterns)


def read_shape(parts: Mapping[str, Located]) -> Shape:
    """The words of ``SHAPE``.

    Raises:
        InputError: names file and line.
    """
    n_clients = parts["clients"].whole(least=1, most=MOST_CLIENTS) if "clients" in parts else None
    read_pct = parts["read_pct"].whole() if "read_pct" in parts else None
    if read_pct is not None and not 1 <= read_pct <= 99:
        parts["read_pct"].refuse(
            f"a mix has 1 to 99 per cent of reads, not {read_pct}",
            "leave it out: the patterns read and randread only read, write and randwrite only write",
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
    )


def read_loads(entry: Located | None, measurement: Measurement) -> tuple[Load, ...]:
    """The section ``measurement.loads``: a name to a shape.

    Args:
        entry: the section; None where there is none.
        measurement: what the loads are laid beside.

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
            body.refuse(f"load {name} is the measurement's own", f"it needs one of {', '.join(SHAPE)}")
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
        )
        _refuse_twin(load, loads, measurement, body)
        loads.append(load)
    return tuple(loads)


def _own_cells(parts: Mapping[str, Located], measurement: Measurement, body: Located) -> tuple[Cell, ...] | None:
    if "sizes" not in parts and "patterns" not in parts:
        return None
    sizes = dict.fromkeys(c.size.name for c in measurement.cells)
    patterns = dict.fromkeys(c.pattern.value for c in measurement.cells)
    wanted_sizes = _words(parts.get("sizes"), "size of this measurement", list(sizes))
    wanted = _words(parts.get("patterns"), "pattern of this measurement", list(patterns))
    cells = tuple(c for c in measurement.cells if c.size.name in wanted_sizes and c.pattern.value in wanted)
    if not cells:
        body.refuse("this load has no cells")
    return cells


def _keep_one_rate(parts: Mapping[str, Located], measurement: Measurement, body: Located) -> None:
    if ("rate" in parts and measurement.rate_iops) or ("rate_iops" in parts and measurement.rate_nbytes_per_s):
        body.refuse(
            "the measurement limits the rate in another unit than this load, and both would hold",
            "write both as rate, or both as rate_iops",
        )


def _refuse_twin(load: Load, others: list[Load], measurement: Measurement, body: Located) -> None:
    """Two loads of one shape would be two names for the same runs."""
    beside = measurement.under("")
    shapes = {"the measurement itself": beside.shape()}
    for other in others:
        shapes[other.name] = _shape_beside(other, beside)
    twin = next((name for name, shape in shapes.items() if shape == _shape_beside(load, beside)), None)
    if twin is not None:
        body.refuse(f"load {load.name} is the same as {twin}", "leave it out, or change what it is to differ in")


def _shape_beside(load: Load, measurement: Measurement) -> dict[str, object]:
    said = load.to_json()
    names = {"clients": "n_clients"}
    return {key: said.get(names.get(key, key), value) for key, value in measurement.shape().items()}


def _words(entry: Located | None, what: str, right: list[str]) -> list[str]:
    """Words of a list, all of ``right`` where the list is left out."""
    if entry is None:
        return list(right)
    words: list[str] = []
    for item in entry.items():
        word = str(item.value)
        if word not in right:
            item.refuse(f"{word!r} is not a {what}", nearest(word, right))
        if word in words:
            item.refuse(f"{what} {word} is given twice")
        words.append(word)
    if not words:
        entry.refuse(f"no {what} at all", f"choose from: {', '.join(right)}")
    return words


_MEASUREMENT = (
    *("sizes", "patterns", "volume_size", "repeats", "ramp_seconds", "run_seconds", "engine", "ioengine"),
    *("direct", "cache", "seed", "max_attempts", *SHAPE, "loads"),
)
MOST_REPEATS = 1000
"""Hundreds of times what a sweep takes: more is a slip of the pen, whose plan alone would take hours."""
_REQUIRED = ("clients", "volume_size", "repeats", "run_seconds", "seed")
_SYNCHRONOUS = ("sync", "psync", "pvsync", "pvsync2")
_LIBRBD = "rbd"
_IOENGINES = ("libaio", "io_uring", "posixaio", _LIBRBD, *_SYNCHRONOUS)
_ENGINES = (FIO, RADOS_BENCH, RBD_BENCH)


def read_measurement(entry: Located, *, stored: bool = False) -> Measurement:
    """The section ``measurement``.

    Args:
        stored: of a run that was measured already, whose volumes may have had any size.

    Raises:
        InputError: names file and line.
    """
    parts = entry.mapping(_MEASUREMENT, required=_REQUIRED)
    cells = read_cells(parts)
    engine = parts["engine"].word(_ENGINES) if "engine" in parts else FIO
    shape = read_shape(parts)
    volume_nbytes = parts["volume_size"].nbytes()
    # Filling and warming write and read whole objects of RBD's default size, whatever the cells' sizes.
    block = max([0 if stored else RBD_OBJECT_NBYTES, *(c.size.benchmark_nbytes for c in cells)])
    if volume_nbytes < block or volume_nbytes % block:
        parts["volume_size"].refuse(
            f"a volume of {parts['volume_size'].value} does not hold whole blocks of {format_nbytes(block)}",
            f"make it a multiple of {format_nbytes(block)}",
        )
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
    )
    measurement = replace(own, loads=read_loads(parts.get("loads"), own))
    for name in measurement.load_names:
        place: Mapping[str, Located] = parts["loads"].mapping()[name].mapping() if name else parts
        _refuse_what_the_engine_lacks(measurement.under(name), place)
    return measurement


def _ioengine(parts: Mapping[str, Located], engine: str) -> str:
    """How fio does I/O. The other engines go through librados and librbd, as fio's engine ``rbd`` does."""
    if engine == FIO:
        return parts["ioengine"].word(_IOENGINES) if "ioengine" in parts else "libaio"
    if "ioengine" in parts and parts["ioengine"].word(_IOENGINES) != _LIBRBD:
        parts["ioengine"].refuse(f"ioengine is an option of fio, but the engine is {engine}", "leave it out")
    return _LIBRBD


def _refuse_what_the_engine_lacks(measurement: Measurement, parts: Mapping[str, Located]) -> None:
    """Words of one load, or of the measurement itself, that would be a lie with this engine."""
    if measurement.ioengine in _SYNCHRONOUS and measurement.iodepth != 1 and "iodepth" in parts:
        parts["iodepth"].refuse(
            f"the synchronous engine {measurement.ioengine} has one I/O in flight, so iodepth "
            f"{measurement.iodepth} is not possible",
            "write iodepth: 1, or an asynchronous engine such as libaio",
        )
    if measurement.engine == FIO:
        return
    for word in ("read_pct", "rate", "rate_iops", "direct"):
        if word in parts:
            parts[word].refuse(f"{measurement.engine} has nothing like {word}", "leave it out, or use engine: fio")
    if measurement.ramp_seconds and "ramp_seconds" in parts:
        parts["ramp_seconds"].refuse(
            f"{measurement.engine} has no ramp: it measures from its first I/O on", "write 0, or use engine: fio"
        )
