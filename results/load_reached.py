"""From the samples of one load to what must be known of it: its mix, and where its own limit was reached."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cephfit.cells import Cell, Op
from cephfit.measured_load import MeasuredLoad, parts_of_mix
from cephfit.sample import Sample
from cephfit.units import NS_PER_S, format_nbytes

_REACHED = 0.97
"""Part of its limit from which on a client is held back by it: fio keeps to a limit within a few per cent."""


def measured_load_of(repeats: Mapping[tuple[str, Cell], Sequence[Sequence[Sample]]]) -> MeasuredLoad:
    """What the evidence says of the load.

    A (configuration, cell) is at the limit where any client reached it in any repeat: there it might have done
    more, and the sum and the mean are too low.

    Args:
        repeats: that count, each as the samples of its clients, by (configuration, cell); of one load.
    """
    said = next((s for place in repeats.values() for repeat in place for s in repeat if _shape(s)), None)
    if said is None:
        return MeasuredLoad()
    shape = _shape(said)
    return MeasuredLoad(
        shape.get("read_pct"),
        _limit_in_words(shape),
        frozenset(place for place, found in repeats.items() if any(map(_reached, _all_of(found)))),
    )


def _all_of(repeats: Iterable[Sequence[Sample]]) -> Iterable[Sample]:
    return (sample for repeat in repeats for sample in repeat)


def _shape(sample: Sample) -> Mapping[str, Any]:
    said = sample.evidence.get("load")
    return said if isinstance(said, Mapping) else {}


def _limit_in_words(shape: Mapping[str, Any]) -> str:
    if shape.get("rate_iops") is not None:
        return f"{shape['rate_iops']} IOPS"
    nbytes = shape.get("rate_nbytes_per_s")
    return f"{format_nbytes(nbytes)} bytes/s" if nbytes is not None else ""


def _reached(sample: Sample) -> bool:
    """Whether the client did what it was limited to, in the cell's own direction or in the other one of a mix.

    One access more is granted: fio's last one before the end of a run waits for its turn and is not counted.
    """
    metrics, limits = sample.metrics, _limits(sample)
    if metrics is None or not limits:
        return False
    own = sample.key.cell.pattern.op
    rates = {own: metrics.iops}
    other = sample.evidence.get("other_direction")
    if isinstance(other, Mapping):
        rates[Op(other["direction"])] = float(other["iops"])
    one_more = NS_PER_S / metrics.runtime_ns
    return any(rate + one_more >= _REACHED * limits[op] for op, rate in rates.items())


def _limits(sample: Sample) -> Mapping[Op, float]:
    """Of one client, I/Os per second by direction; empty where there is no limit."""
    shape = _shape(sample)
    iops, nbytes = shape.get("rate_iops"), shape.get("rate_nbytes_per_s")
    limit = iops if iops is not None else nbytes
    if limit is None:
        return {}
    per_access = 1 if iops is not None else sample.key.cell.size.benchmark_nbytes
    read_pct = shape.get("read_pct")
    parts = dict.fromkeys(Op, limit) if read_pct is None else parts_of_mix(limit, read_pct)
    return {op: part / per_access for op, part in parts.items()}
