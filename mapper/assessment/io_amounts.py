"""The I/O that a workload does per operation, compared between configurations. Pure.

A prediction is for equal I/O. A workload does not always give that: one that fills its own cache during the run
reads less per operation on faster storage, because it does more operations; and more writes may meet in its queue
and be merged where storage is slow. The kernel's counters of the workload's devices show it.
"""

import math
from collections.abc import Mapping, Sequence

from cephfit.core.values.assessment import AssessmentRow
from cephfit.core.values.sample import DEVICE_IO, State, WorkloadSample

ALIKE = 1.25
"""Amounts that differ by less than this factor need no note."""


def io_per_operation(samples: Sequence[WorkloadSample], default: str) -> dict[str, float]:
    """Return the I/Os per operation of each configuration, relative to the default.

    Args:
        samples: of one workload. Only ok ones whose I/O was counted are used.
        default: configuration.

    Returns:
        Geometric mean over the runs of a configuration, over that of the default; empty if that was not counted.
    """
    logs: dict[str, list[float]] = {}
    for sample in samples:
        counted = sample.evidence.get(DEVICE_IO)
        if sample.state is State.OK and counted and (amount := _per_operation(sample.value, counted)):
            logs.setdefault(sample.configuration, []).append(math.log(amount))
    means = {name: math.fsum(own) / len(own) for name, own in logs.items()}
    if default not in means:
        return {}
    return {name: math.exp(mean - means[default]) for name, mean in means.items()}


def _per_operation(value: float | None, counted: Mapping[str, float | None]) -> float | None:
    """Return I/Os per operation; None if a count is missing.

    Operations that the workload does not count are the value times the seconds of the run.
    """
    n_operations = counted.get("operations") or (value or 0.0) * (counted.get("seconds") or 0.0)
    n_ios = (counted.get("n_reads") or 0) + (counted.get("n_writes") or 0)
    return n_ios / n_operations if n_operations and n_ios else None


def other_amounts(rows: Sequence[AssessmentRow]) -> list[str]:
    """Return a note on the configurations on which the workload did another amount of I/O per operation."""
    other = [
        f"{row.configuration} {row.io_per_operation:.2f}"
        for row in rows
        if row.io_per_operation is not None and not 1 / ALIKE <= row.io_per_operation <= ALIKE
    ]
    if not other:
        return []
    return [
        "the workload did another amount of I/O per operation than on the default (times as many I/Os: "
        f"{', '.join(other)}): its own cache served more or fewer of them, or they were merged differently. "
        "Predictions are for equal I/O, so not all of the difference is the storage's; give each run the same "
        "operations (docs/workloads.md)"
    ]
