"""The truth about the simulated cluster, which measured and predicted values are compared with."""

from collections.abc import Sequence
from dataclasses import replace

from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration
from cephfit.core.values.demand import Demand
from cephfit.core.values.profile import Profile
from cephfit.targets.simulated_storage import LAB, Access, iops
from cephfit.targets.simulated_workload import access_of, demands_of

_DEFAULT = Configuration(DEFAULT_CONFIGURATION)


def true_iops(
    configuration: Configuration,
    cell: Cell,
    *,
    n_clients: int,
    iodepth: float,
    align_nbytes: int = 0,
    sync: str = "",
) -> float:
    """Return the true steady IOPS of one of ``n_clients`` equal clients in a cell."""
    access = Access(cell.size.benchmark_nbytes, cell.pattern, iodepth, align_nbytes, sync)
    return iops(configuration, access, n_clients=n_clients)


def with_waiting_times(profile: Profile, configuration: Configuration = _DEFAULT) -> Profile:
    """Return a profile whose demands have the true waiting times under a configuration: what its trace would show.

    The waiting time of flushes is separate from that of writes, as in traces.
    """
    demands: Sequence[Demand] = [
        replace(d, waiting_seconds=d.accesses / iops(configuration, access_of(d))) for d in demands_of(profile)
    ]
    commits = profile.commits
    if commits is not None:
        commits = replace(commits, flush_waiting_seconds=commits.flushes * LAB.flush)
    return replace(profile, demands=tuple(demands), commits=commits)
