"""`cephfit trace workload`: run a real workload on a target's default configuration and capture its trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.cluster_options import cluster_options
from cephfit.cli.options.common_options import Finite, needed_apply_option, scale_option, target_option
from cephfit.cli.options.workload_choice import workload_option
from cephfit.cli.terminal.output import json_option, print_json, sigterm_as_interrupt
from cephfit.cli.trace.trace_input import trace_place
from cephfit.operations.cluster_options import ClusterOptions
from cephfit.operations.progress_display import progress_display

if TYPE_CHECKING:
    from cephfit.cloud.guests.guest_tracing import GuestTrace
    from cephfit.core.values.sample import WorkloadSample
    from cephfit.targets.abilities import MayKeepCaches
    from cephfit.traces.capturing.capture_record import CaptureReport

_CLIENT = "c0"
"""The only client of the workload."""


@click.command("workload", short_help="Run a real workload on a target and capture its trace.")
@target_option("lab", "lab:NAME", "ceph", "ceph:NAME", "openstack:CLOUD,...")
@workload_option
@scale_option
@click.option(
    "--seconds", type=Finite(min=1), default=30.0, show_default=True, help="How long the workload is measured."
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=2017,
    show_default=True,
    help="Seed of the workload's random choices.",
)
@click.option(
    "--cache",
    "cache_text",
    type=click.Choice(("cold", "warm")),
    default="cold",
    show_default=True,
    help="The cluster's caches before the run: dropped (cold), or warmed by reading the volume once.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    required=True,
    help="Folder for the files (end its name with / to create it), or their base name.",
)
@needed_apply_option
@cluster_options
@json_option
def command(
    target_text: str,
    workload: str,
    scale: int | None,
    seconds: float,
    seed: int,
    cache_text: str,
    output: str,
    apply: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Run the workload once on the default configuration and record the accesses to its block device.

    Loading the data and the start of pgbench are not recorded; for your own program, the whole step `run` is
    recorded. The volume is kept for the next run of this command. In a cloud
    (`openstack:CLOUD,image=cephfit-guest-postgresql,...`) pgbench runs in a guest on its Cinder volume, and the
    guest's kernel records it; the guest is deleted at the end.
    """
    import secrets
    from collections.abc import Iterator
    from contextlib import contextmanager

    from cephfit.cli.options.workload_choice import trial_of
    from cephfit.core.errors import ClusterError
    from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration
    from cephfit.core.values.measurement import CacheCondition
    from cephfit.core.values.sample import State
    from cephfit.operations.target_choice import open_target
    from cephfit.sweep.verification import run_once
    from cephfit.targets.abilities import BelongsToRun, MayKeepCaches, RunsGuestJobs
    from cephfit.traces.capturing.capture import capturing

    captured: list[CaptureReport] = []
    of_guests: list[GuestTrace] = []

    @contextmanager
    def observe(device: Path) -> Iterator[None]:
        with trace_place(output) as place, capturing(device, place) as report:
            yield
        captured.append(report)

    with sigterm_as_interrupt(), progress_display() as progress:
        target = open_target(target_text, for_change=True, progress=progress, cluster=cluster, leave=apply)
        in_guests = isinstance(target, RunsGuestJobs)
        try:
            cache = CacheCondition(cache_text)
            if cache is CacheCondition.COLD and isinstance(target, MayKeepCaches):
                _require_droppable(target, target_text)
            if in_guests:
                _guest_file(output)  # refused before minutes of work
            if isinstance(target, BelongsToRun):
                target.begin(f"trace-{workload.partition(':')[0]}-{secrets.token_hex(4)}")
            trial = trial_of(
                target,
                workload,
                scale=scale,
                repeats=1,
                seconds=seconds,
                seed=seed,
                cache=cache,
                observe=observe,
                collect=of_guests.append if in_guests else None,
            )
            sample = run_once(target, Configuration(DEFAULT_CONFIGURATION), trial, progress=progress)
            captured += [_kept(trace, sample, output) for trace in of_guests]
        finally:
            try:
                if in_guests:
                    target.reset()
            finally:
                target.close()
    if sample.state is not State.OK or not captured:
        raise ClusterError(
            f"{trial.workload.name} gave no valid run: {sample.reason}",
            where=target_text,
            remedy="delete the trace files, remove the cause, then run the command again",
        )
    report, name = captured[0], trial.workload.name
    if as_json:
        print_json({"workload": name, "metric": sample.metric, "value": sample.value, **report.to_json()})
        return
    click.echo(f"{name}: {sample.value:.1f} {sample.metric} while it was traced by {report.method}")
    click.echo(f"trace of {report.seconds:.1f} s: {', '.join(report.files)}; {report.lost_events} events lost")
    source = report.files[0] if of_guests else output
    click.echo(f"next: cephfit trace profile {source} --name {name} -o profile.json")


def _require_droppable(target: MayKeepCaches, target_text: str) -> None:
    from cephfit.core.errors import InputError

    if why := target.why_caches_stay():
        raise InputError(why, where=f"--target {target_text}", remedy="add --cache warm")


def _guest_file(output: str) -> Path:
    from cephfit.traces.capturing.capture_record import file_of

    with trace_place(output) as place:
        return file_of(place, _CLIENT)


def _kept(trace: GuestTrace, sample: WorkloadSample, output: str) -> CaptureReport:
    from cephfit.cloud.guests.guests import VOLUME
    from cephfit.core.units import NS_PER_S
    from cephfit.traces.capturing.capture_record import file_of, keep

    times = sample.evidence["output"]
    seconds = (times["finished_ns"] - times["started_ns"]) / NS_PER_S
    with trace_place(output) as place:
        file = file_of(place, _CLIENT)
        return keep(trace.text, trace.lost_events, file, volume=VOLUME, seconds=seconds)
