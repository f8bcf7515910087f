"""Causes of a measured difference that are not the storage: other amounts of I/O, and busy CPUs. Pure.

A prediction is for equal I/O. A workload does not always give that: one that fills its own cache during the run
reads less per operation on faster storage, because it does more operations; and more writes may meet in its queue
and be merged where storage is slow. The kernel's counters of the workload's devices show it.

Runs on one configuration can differ likewise: a kernel writes changed pages when they are 30 s old, or many, so in
one run and not in another.

Where the CPUs are busy, they limit the workload, and faster storage does not make it faster.
"""

import math
from collections.abc import Sequence

from cephfit.core.values.assessment import AssessmentRow
from cephfit.core.values.sample import CPU_BUSY, DEVICE_IO, State, WorkloadSample

ALIKE = 1.25
"""Amounts that differ by less than this factor need no note."""
BUSY = 0.9
"""Share of the CPUs' time from which on they limit a workload."""


def io_per_operation(samples: Sequence[WorkloadSample], default: str) -> dict[str, float]:
    """Return the I/Os per operation of each configuration, relative to the default.

    Args:
        samples: of one workload. Only ok ones whose I/O was counted are used.
        default: configuration.

    Returns:
        Geometric mean over the runs of a configuration, over that of the default; empty if that was not counted.
    """
    logs = {name: [math.log(sum(run)) for run in its] for name, its in _per_operation(samples).items()}
    means = {name: math.fsum(own) / len(own) for name, own in logs.items()}
    if default not in means:
        return {}
    return {name: math.exp(mean - means[default]) for name, mean in means.items()}


def _per_operation(samples: Sequence[WorkloadSample]) -> dict[str, list[tuple[float, float]]]:
    """Return the reads and the writes per operation of each configuration's ok runs whose I/O was counted.

    Operations that the workload does not count are the value times the seconds of the run.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for sample in samples:
        counted = sample.evidence.get(DEVICE_IO)
        if sample.state is not State.OK or not counted:
            continue
        n_reads, n_writes = counted.get("n_reads") or 0, counted.get("n_writes") or 0
        n_operations = counted.get("operations") or (sample.value or 0.0) * (counted.get("seconds") or 0.0)
        if n_operations and n_reads + n_writes:
            its = n_reads / n_operations, n_writes / n_operations
            found.setdefault(sample.configuration, []).append(its)
    return found


def unlike_runs(samples: Sequence[WorkloadSample]) -> list[str]:
    """Return a note for each configuration of whose runs one did another amount of I/O per operation.

    Args:
        samples: of one workload. Only ok ones whose I/O was counted are used.
    """
    return [
        f"the runs of {name} did unlike amounts of I/O per operation ({_range([r for r, _ in its])} reads, "
        f"{_range([w for _, w in its])} writes): its own cache served more of them in some runs, or its kernel "
        "wrote back changed data. Not all of their scatter is the storage's; longer runs are more alike "
        "(docs/workloads.md)"
        for name, its in _per_operation(samples).items()
        if max(map(sum, its)) > ALIKE * min(map(sum, its))
    ]


def _range(amounts: Sequence[float]) -> str:
    return f"{min(amounts):.2f} to {max(amounts):.2f}"


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


def cpu_busy(samples: Sequence[WorkloadSample]) -> dict[str, float]:
    """Return the busy share of the CPUs, 0 to 1, of each configuration: the mean of its ok runs that have it."""
    shares: dict[str, list[float]] = {}
    for sample in samples:
        if sample.state is State.OK and (share := sample.evidence.get(CPU_BUSY)) is not None:
            shares.setdefault(sample.configuration, []).append(share)
    return {name: math.fsum(own) / len(own) for name, own in shares.items()}


def limited_by_cpus(rows: Sequence[AssessmentRow]) -> list[str]:
    """Return a note on the configurations on which the CPUs limited the workload."""
    shares = {row.configuration: row.cpu_busy or 0.0 for row in rows}
    busy = [f"{name} {100 * share:.0f} %" for name, share in shares.items() if share >= BUSY]
    if not busy:
        return []
    return [
        f"the CPUs of the machine that ran the workload were busy ({', '.join(busy)}), so that they limited it "
        "there, not the storage alone. A prediction does not know that: with more CPUs, or with the storage's "
        "daemons on other machines, these configurations may be faster"
    ]
