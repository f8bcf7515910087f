"""The section of a sweep file that says how every cell is measured."""

from collections.abc import Mapping
from dataclasses import replace

from cephfit.measurement import FIO, RADOS_BENCH, RBD_BENCH, RBD_OBJECT_NBYTES, CacheCondition, Measurement
from cephfit.sweep.declaration.file_loads import SHAPE, read_cells, read_loads, read_shape
from cephfit.sweep.yaml_lines import MOST, Located
from cephfit.units import format_nbytes

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
