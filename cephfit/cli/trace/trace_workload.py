"""`cephfit trace workload`: run a real workload on a target's default configuration and capture its trace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import (
    Finite,
    clients_option,
    cluster_options,
    needed_apply_option,
    scale_option,
    target_option,
)
from cephfit.cli.options.workload_choice import workload_option
from cephfit.cli.output import json_option, print_json, sigterm_as_interrupt
from cephfit.cli.trace.trace_input import trace_place
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.progress_display import progress_display

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cephfit.cloud.guests.guest_tracing import GuestTrace
    from cephfit.core.protocols import KeepOnly, Progress, Target
    from cephfit.core.values.measurement import CacheCondition
    from cephfit.core.values.sample import WorkloadSample
    from cephfit.sweep.trial import Trial
    from cephfit.targets.abilities import MayKeepCaches
    from cephfit.traces.capturing.capture import CaptureReport


@click.command("workload", short_help="Run a real workload on a target and capture its trace.")
@target_option("lab", "lab:NAME", "ceph", "ceph:NAME", "openstack:CLOUD,...")
@workload_option
@scale_option
@clients_option
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
    clients: int | None,
    seconds: float,
    seed: int,
    cache_text: str,
    output: str,
    apply: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Run the workload once on the default configuration and record the accesses to its block device.

    Loading the data and the start of pgbench are not recorded; of your own program, the measured time of the step
    `run` is kept, which it may state (docs/workloads.md). The volume is kept for the next run of this command.

    In a cloud (`openstack:CLOUD,image=cephfit-guest-postgresql,...`) pgbench runs in a guest on its Cinder volume,
    and the guest's kernel records it; the guest is deleted at the end.

    With `--clients N` the workload runs on N volumes or guests at once, and each is recorded in its own files.
    """
    from cephfit.core.errors import ClusterError
    from cephfit.core.values.measurement import CacheCondition
    from cephfit.core.values.sample import State
    from cephfit.operations.measuring.target_choice import open_target
    from cephfit.targets.abilities import MayKeepCaches, RunsGuestJobs

    n_clients = clients or 1
    _require_place_for(n_clients, output)
    traces = _Traces(output, tuple(f"c{i}" for i in range(n_clients)))
    cache = CacheCondition(cache_text)
    with sigterm_as_interrupt(), progress_display() as progress:
        target = open_target(target_text, for_change=True, progress=progress, cluster=cluster, leave=apply)
        in_guests = isinstance(target, RunsGuestJobs)
        try:
            if cache is CacheCondition.COLD and isinstance(target, MayKeepCaches):
                _require_droppable(target, target_text)
            if in_guests:
                traces.refuse_existing()  # before minutes of work
            trial, sample = _run_traced(
                target,
                workload,
                traces,
                progress,
                scale=scale,
                seconds=seconds,
                seed=seed,
                cache=cache,
                in_guests=in_guests,
            )
        finally:
            try:
                if in_guests:
                    target.reset()
            finally:
                target.close()
    if sample.state is not State.OK or len(traces.captured) < n_clients:
        raise ClusterError(
            f"{trial.workload.name} gave no valid run: {sample.reason}",
            where=target_text,
            remedy="delete the trace files, remove the cause, then run the command again",
        )
    captured = sorted(traces.captured, key=lambda report: report.files)
    if n_clients > 1:
        _print_several(captured, sample, trial.name, output, as_json=as_json)
    else:
        source = captured[0].files[0] if traces.of_guests else output
        _print_one(captured[0], sample, trial.workload.name, source, as_json=as_json)


@dataclass(slots=True)
class _Traces:
    """The traces of the clients of one run.

    Attributes:
        output: file or folder, as on the command line.
        clients: their names.
        captured: traces that are in their files.
        of_guests: traces that guests recorded and that are not in files yet.
    """

    output: str
    clients: tuple[str, ...]
    captured: list[CaptureReport] = field(default_factory=list)
    of_guests: list[GuestTrace] = field(default_factory=list)

    @contextmanager
    def observe(self, device: Path) -> Iterator[KeepOnly]:
        """Record a block device of this machine; give what keeps only a part of the recording."""
        from cephfit.traces.capturing.capture import capturing, keep_only

        with trace_place(self.output) as place, capturing(device, place) as report:
            yield partial(keep_only, report)
        self.captured.append(report)

    def refuse_existing(self) -> None:
        """Refuse an output in which a trace exists already.

        Raises:
            InputError: a trace exists in the place of a client's.
        """
        from cephfit.traces.capturing.capture import file_of

        with trace_place(self.output) as place:
            for client in self.clients:
                file_of(place, client)

    def keep_those_of_guests(self, sample: WorkloadSample) -> None:
        """Write the guests' traces into files; there are none on other targets."""
        for trace, client in zip(self.of_guests, self.clients, strict=False):
            self.captured.append(_kept(trace, _output_of(sample, client), self.output, client))


def _run_traced(
    target: Target,
    workload: str,
    traces: _Traces,
    progress: Progress,
    *,
    scale: int | None,
    seconds: float,
    seed: int,
    cache: CacheCondition,
    in_guests: bool,
) -> tuple[Trial, WorkloadSample]:
    """Run the workload once on the default configuration while it is recorded; return what ran, and its result."""
    import secrets

    from cephfit.cli.options.workload_choice import trial_of
    from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration
    from cephfit.core.values.sample import State
    from cephfit.sweep.verification import run_once
    from cephfit.targets.abilities import BelongsToRun

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
        observe=traces.observe,
        collect=traces.of_guests.append if in_guests else None,
        n_clients=len(traces.clients),
    )
    with trace_place(traces.output):
        sample = run_once(target, Configuration(DEFAULT_CONFIGURATION), trial, progress=progress)
        if sample.state is State.OK:
            traces.keep_those_of_guests(sample)
    return trial, sample


def _require_droppable(target: MayKeepCaches, target_text: str) -> None:
    from cephfit.core.errors import InputError

    if why := target.why_caches_stay():
        raise InputError(why, where=f"--target {target_text}", remedy="add --cache warm")


def _require_place_for(n_clients: int, output: str) -> None:
    """Refuse a place that cannot take the traces.

    Raises:
        InputError: it is no folder for several clients, its folder is missing, or a trace exists there.
    """
    from cephfit.core.errors import InputError

    if n_clients > 1 and not (output.endswith(os.sep) or Path(output).is_dir()):
        raise InputError(
            f"the traces of {n_clients} clients need a folder",
            where=f"-o {output}",
            remedy=f"end its name with {os.sep} to create it",
        )
    if not output.endswith(os.sep) and not Path(output).is_dir():
        from cephfit.traces.capturing.capture import place_of

        place_of(Path(output), "")  # before minutes of work


def _print_one(report: CaptureReport, sample: WorkloadSample, name: str, source: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"workload": name, "metric": sample.metric, "value": sample.value, **report.to_json()})
        return
    click.echo(f"{name}: {sample.value:.1f} {sample.metric} while it was traced by {report.method}")
    click.echo(f"trace of {report.seconds:.1f} s: {', '.join(report.files)}; {report.lost_events} events lost")
    click.echo(f"next: cephfit trace profile {source} --name {name} -o profile.json")


def _print_several(
    captured: Sequence[CaptureReport], sample: WorkloadSample, name: str, output: str, *, as_json: bool
) -> None:
    from cephfit.sweep.trial import CLIENTS, TOGETHER, client_rates_of

    values = {client: figures["value"] for client, figures in sample.evidence[CLIENTS].items()}
    if as_json:
        traces = [report.to_json() for report in captured]
        of_clients = {"clients": values, TOGETHER: sample.evidence[TOGETHER], "traces": traces}
        print_json({"workload": name, "metric": sample.metric, "value": sample.value, **of_clients})
        return
    rates = client_rates_of(sample)
    assert rates is not None
    click.echo(f"{name}: {sample.value:.1f} {sample.metric} together while traced by {captured[0].method}")
    click.echo(
        f"each client: {rates.lowest:.1f} to {rates.highest:.1f}, median {rates.median:.1f}; fairness (Jain) "
        f"{rates.fairness:.3f}"
    )
    for report in captured:
        click.echo(
            f"trace of {report.device}, {report.seconds:.1f} s: {', '.join(report.files)}; {report.lost_events} "
            "events lost"
        )
    recording = captured[0].files[0].partition(".blktrace.")[0]  # with the files of all CPUs
    click.echo(f"next: cephfit trace profile {recording} --name {name.split()[0]} -o profile.json")


def _output_of(sample: WorkloadSample, client: str) -> Mapping[str, Any]:
    """Return what the workload printed on a client."""
    from cephfit.sweep.trial import CLIENTS

    own: Mapping[str, Any] = sample.evidence.get(CLIENTS, {}).get(client) or sample.evidence
    return dict(own["output"])


def _kept(trace: GuestTrace, times: Mapping[str, Any], output: str, client: str) -> CaptureReport:
    from cephfit.cloud.guests.guests import VOLUME
    from cephfit.core.units import NS_PER_S
    from cephfit.traces.capturing.capture import file_of, keep

    seconds = (times["finished_ns"] - times["started_ns"]) / NS_PER_S
    with trace_place(output) as place:
        file = file_of(place, client)
        return keep(trace.text, trace.lost_events, file, volume=VOLUME, seconds=seconds)
