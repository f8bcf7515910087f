"""How long the steps of a sweep took on a target before, from the store."""

from itertools import pairwise
from statistics import median

from cephfit.measurement import ASSUMED_TIMES, StepTimes
from cephfit.protocols import Target
from cephfit.results.store import Store
from cephfit.sample import State
from cephfit.sweep.abilities import KnowsItsTimes
from cephfit.sweep.declaration.file import parse_sweep
from cephfit.sweep.plan import warmed_nbytes
from cephfit.units import NS_PER_S


def times_on(target: Target, store: Store | None) -> StepTimes:
    """What steps take on a target: by itself, by earlier runs in ``store``, or as assumed of any cluster."""
    if isinstance(target, KnowsItsTimes):
        return target.step_times()
    return (None if store is None else times_of(store, target.name)) or ASSUMED_TIMES


def times_of(store: Store, target: str) -> StepTimes | None:
    """Medians over the newest run on ``target`` that has samples; None where there is none.

    The time around a fio run is the median distance between the starts of two consecutive fio runs under one
    configuration, less ramp and run time. Where caches were warm, what is more than usual was the reading before.
    """
    for run in store.runs():
        if run.target != target:
            continue
        measurement = parse_sweep(run.sweep_text, file=run.run_id, stored=True).measurement
        starts: dict[int, tuple[str, int]] = {}
        for sample in store.samples(run.run_id):
            if sample.state is State.OK:
                starts[sample.started_ns] = (sample.key.configuration, sample.key.repeat)
        order = sorted(starts)
        gaps = [(b - a) / NS_PER_S for a, b in pairwise(order) if starts[a] == starts[b]]
        # The first application of a configuration fills its volumes: not what the others take.
        applied = [a.seconds for repeat, a in store.applied(run.run_id) if repeat > 0] or [
            a.seconds for _, a in store.applied(run.run_id)
        ]
        if gaps and applied:
            asked = measurement.ramp_seconds + measurement.run_seconds
            around = max(0.0, median(gaps) - asked)
            read = warmed_nbytes(measurement)
            reading = max(0.0, around - ASSUMED_TIMES.cell_seconds) if read else 0.0
            return StepTimes(
                apply_seconds=median(applied),
                cell_seconds=around - reading,
                fill_nbytes_per_s=ASSUMED_TIMES.fill_nbytes_per_s,
                source=f"as run {run.run_id} took on {target}",
                warm_nbytes_per_s=_rate(read, reading),
            )
    return None


def _rate(nbytes: int, seconds: float) -> float:
    """Bytes per second of reading volumes through; as assumed where none were read."""
    if not nbytes:
        return ASSUMED_TIMES.warm_nbytes_per_s
    return nbytes / seconds if seconds else float("inf")
