"""Workloads on the command line: profiles with a number of machines, and options that select a real workload."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.completers import workload_names

if TYPE_CHECKING:
    from cephfit.cloud.guests.guest_tracing import GuestTrace
    from cephfit.core.protocols import Observe, Target, Workload
    from cephfit.core.values.measurement import CacheCondition
    from cephfit.core.values.profile import Profile
    from cephfit.sweep.trial import Trial

_PGBENCH, _PROGRAM, _PROFILE = "pgbench", "program", "profile"


_READY = "pgbench|NAME|program:FILE"
_HELP = "Workload to run: pgbench on PostgreSQL, a ready one such as mail, or your own program (docs/workloads.md)"


def _known(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """``pgbench``, or ``program:`` and a path, which may be given as the name of a ready program."""
    from cephfit.lab.workloads import ready_programs

    kind, _, path = value.partition(":")
    if value == _PGBENCH or (kind == _PROGRAM and path):
        return value
    ready = ready_programs()
    if value not in ready:
        raise click.BadParameter(
            f"{value!r} is neither pgbench, nor program:FILE, nor a ready workload ({', '.join(ready)})."
        )
    return f"{_PROGRAM}:{ready[value]}"


workload_option = click.option(
    "--workload",
    callback=_known,
    default=_PGBENCH,
    show_default=True,
    shell_complete=workload_names,
    metavar=_READY,
    help=f"{_HELP}.",
)


def _known_or_profile(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """None, ``profile``, or as ``_known``."""
    return value if value is None or value == _PROFILE else _known(context, parameter, value)


verified_workload_option = click.option(
    "--workload",
    callback=_known_or_profile,
    shell_complete=workload_names,
    metavar=f"{_READY}|profile",
    help=f"{_HELP}; on a simulated target, the accesses of the profile.  [default: pgbench; on a simulated "
    "target, profile]",
)


def _all_known(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_known(context, parameter, value) for value in values)


workloads_option = click.option(
    "--workload",
    "workloads",
    callback=_all_known,
    multiple=True,
    required=True,
    shell_complete=workload_names,
    metavar=_READY,
    help=f"{_HELP}. More than once.",
)

_ROOM = 1.25
"""Volume size relative to the workload's requirement: a nearly full file system is slower."""


def trial_of(
    target: Target,
    workload: str | None,
    *,
    scale: int | None,
    repeats: int,
    seconds: float,
    seed: int,
    cache: CacheCondition,
    observe: Observe | None = None,
    collect: Callable[[GuestTrace], None] | None = None,
    profile: Profile | None = None,
    n_clients: int = 1,
) -> Trial:
    """Return the trial of a workload, sized for its volume; pgbench runs in guests if the target has guests.

    On a lab, the disks' limits are lifted while nothing is measured. A simulated target runs the accesses of the
    profile, and no program.

    Args:
        target: on which it will run.
        workload: as ``--workload`` takes it; None: the default of the target.
        scale: of pgbench's database; None: the default.
        repeats: runs per configuration.
        seconds: of each run.
        seed: of the order of runs.
        cache: the condition of the cluster's caches before each run.
        observe: records each measured run.
        collect: receives a trace of each measured run in a guest; None: no traces are recorded.
        profile: of the workload, for a simulated target; None: a simulated target is refused.
        n_clients: how many run the workload at once.

    Raises:
        InputError: the workload does not suit the target: a program in guests, or one on a simulation, or a
            profile on a real target; or a program breaks the rules of docs/workloads.md.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.units import MIB
    from cephfit.lab.lab_target import LabTarget
    from cephfit.lab.workloads.pgbench import GuestPgBench, PgBench, PgBenchSpec, spec_of
    from cephfit.lab.workloads.program_workload import ProgramWorkload
    from cephfit.sweep.concurrent_clients import Lockstep
    from cephfit.sweep.trial import Trial
    from cephfit.targets.abilities import RunsGuestJobs
    from cephfit.targets.simulated import SimulatedTarget
    from cephfit.targets.simulated_workload import LEAST_NBYTES, SimulatedWorkload

    if isinstance(target, SimulatedTarget):
        if profile is None or workload not in (None, _PROFILE) or scale is not None:
            raise InputError(
                "a simulated cluster has no disks for a real workload",
                where=target.name,
                remedy="name a real target, such as lab; `cephfit verify` without --workload and --scale runs the "
                "accesses of the profile on a simulated one",
            )
        simulated = SimulatedWorkload(target, profile)
        return Trial(simulated, LEAST_NBYTES, repeats, seconds, seed, cache, n_clients)
    if workload == _PROFILE:
        raise InputError(
            "only a simulated target can run the accesses of a profile",
            where=f"--target {target.name}",
            remedy="run pgbench or program:FILE",
        )
    workload = workload or _PGBENCH
    unmeasured = Lockstep(target.full_speed if isinstance(target, LabTarget) else nullcontext)
    chosen: Workload
    if workload != _PGBENCH:
        where = f"--workload {workload}"
        if scale is not None:
            raise InputError("--scale is for pgbench only", where=where, remedy="omit it")
        if isinstance(target, RunsGuestJobs):
            raise InputError(
                "your own program runs on this machine, not in guests",
                where=where,
                remedy="verify with pgbench in guests, or with the program on --target ceph",
            )
        chosen = ProgramWorkload(
            Path(workload.partition(":")[2]).expanduser(), unmeasured=unmeasured, observe=observe
        )
        nbytes = -(-chosen.volume_nbytes // MIB) * MIB
    else:
        if isinstance(target, RunsGuestJobs):
            spec = spec_of(scale)
            chosen = GuestPgBench(target, spec, collect=collect)
        else:
            spec = PgBenchSpec() if scale is None else PgBenchSpec(scale=scale)
            chosen = PgBench(spec, unmeasured=unmeasured, observe=observe)
        nbytes = -int(-spec.database_nbytes * _ROOM // MIB) * MIB
    return Trial(chosen, nbytes, repeats, seconds, seed, cache, n_clients, unmeasured)


_MOST_MACHINES = 1_000_000
"""Largest number of virtual machines of a workload: larger ones are taken for errors."""


def split_argument(text: str) -> tuple[Path, str]:
    """Split ``PROFILE:NUMBER``; the second part is empty without a number.

    A colon belongs to the name if a file of the whole name exists, or if no number follows (``example:pgbench``).
    """
    name, colon, rest = text.rpartition(":")
    if not colon or Path(text).exists() or not rest or not (rest[0].isdigit() or rest[0] in "+-."):
        return Path(text), ""
    return Path(name), rest


def weighted_profile(text: str) -> tuple[Profile, float]:
    """Read ``PROFILE:WEIGHT``; the weight is 1 if missing.

    Raises:
        InputError: the profile cannot be read, or the weight is not a number above 0.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.profile_files import read_profile

    path, number = split_argument(text)
    try:
        weight = float(number or 1)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise InputError(
            f"{number!r} is not a weight",
            where=text,
            remedy=f"write a number above 0, such as {path}:3; leave a workload out that does not count",
        )
    return read_profile(path), weight


def counted_profile(text: str) -> tuple[Profile, int]:
    """Read ``PROFILE:COUNT``; the count is 1 if missing.

    Raises:
        InputError: the profile cannot be read, or the count is not a whole number above 0.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.profile_files import read_profile
    from cephfit.core.units import whole_number

    path, number = split_argument(text)
    count = whole_number(number or "1")
    if number.isascii() and number.isdecimal() and (count is None or count > _MOST_MACHINES):
        raise InputError(
            f"{number[:20]} virtual machines are too many",
            where=text[:200],
            remedy=f"give at most {_MOST_MACHINES:,}",
        )
    if not count:
        raise InputError(
            f"{number[:20]!r} is not a number of virtual machines",
            where=text[:200],
            remedy=f"write a whole number above 0, such as {path}:40",
        )
    return read_profile(path), count
