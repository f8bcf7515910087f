"""`cephfit trace workload`: run a real workload on a target's default configuration and capture its trace."""

from __future__ import annotations

from pathlib import Path

import click

from cephfit.cli.cluster_options import ClusterOptions, cluster_options
from cephfit.cli.output import json_option, print_json, progress_display
from cephfit.cli.trace_place import trace_place
from cephfit.cli.workload_choice import WORKLOADS


@click.command("workload", short_help="Run a real workload on a target and capture its trace.")
@click.option(
    "--target",
    "target_text",
    required=True,
    metavar="TARGET",
    help="Where: `lab`, `lab:NAME`, `ceph`, `ceph:NAME`.",
)
@click.option("--workload", type=click.Choice(WORKLOADS), default=WORKLOADS[0], show_default=True)
@click.option("--scale", type=click.IntRange(min=1), help="Size of pgbench's database, in 15 MiB.")
@click.option("--seconds", type=click.FloatRange(min=1), default=30.0, show_default=True, help="Measured time.")
@click.option("--seed", type=int, default=2017, show_default=True, help="Kept with the run.")
@click.option(
    "--cache",
    "cache_text",
    type=click.Choice(("cold", "warm")),
    default="cold",
    show_default=True,
    help="The cluster's caches before the run: dropped, or warm from one reading of the volume.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    required=True,
    help="A folder (a new one: with / at its end), or the base name of the files.",
)
@click.option("--apply", is_flag=True, help="Do it, on a cluster that cephfit did not make.")
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
    """Run the workload once on the default configuration and record what its block device is asked to do.

    Loading the data and starting up are not recorded. The volume stays, for the next run of this command.
    """
    from collections.abc import Iterator
    from contextlib import contextmanager

    from cephfit.cli.target_choice import open_target
    from cephfit.cli.workload_choice import trial_of
    from cephfit.configuration import DEFAULT_CONFIGURATION, Configuration
    from cephfit.errors import ClusterError
    from cephfit.sample import State
    from cephfit.sweep.model import CacheCondition
    from cephfit.sweep.verification import run_once
    from cephfit.traces.capturing.capture import capturing
    from cephfit.traces.capturing.capture_record import CaptureReport

    captured: list[CaptureReport] = []

    @contextmanager
    def observe(device: Path) -> Iterator[None]:
        with trace_place(output) as place, capturing(device, place) as report:
            yield
        captured.append(report)

    with progress_display() as progress:
        target = open_target(target_text, for_change=True, progress=progress, cluster=cluster, leave=apply)
        try:
            cache = CacheCondition(cache_text)
            trial = trial_of(
                target, scale=scale, repeats=1, seconds=seconds, seed=seed, cache=cache, observe=observe
            )
            sample = run_once(target, Configuration(DEFAULT_CONFIGURATION), trial, progress=progress)
        finally:
            target.close()
    if sample.state is not State.OK or not captured:
        raise ClusterError(
            f"{workload} gave no run to trust: {sample.reason}",
            where=target_text,
            remedy="remove the trace files, mend the reason, then run it again",
        )
    report = captured[0]
    if as_json:
        print_json({"workload": workload, "metric": sample.metric, "value": sample.value, **report.to_json()})
        return
    click.echo(f"{workload}: {sample.value:.1f} {sample.metric} while it was traced by {report.method}")
    click.echo(f"trace of {report.seconds:.1f} s: {', '.join(report.files)}; {report.lost_events} events lost")
    click.echo(f"next: cephfit trace profile {output} --name {workload} -o profile.json")
