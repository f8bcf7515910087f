"""`cephfit evaluate`: run several real workloads on every configuration of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import (
    Finite,
    cluster_options,
    keep_option,
    needed_apply_option,
    run_of_sweep_option,
    store_option,
    sweep_option,
    target_option,
)
from cephfit.cli.options.completers import configurations
from cephfit.cli.options.workload_choice import workloads_option
from cephfit.cli.output import json_option, print_json, print_table, sigterm_as_interrupt
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.progress_display import progress_display

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from cephfit.core.protocols import KeepOnly
    from cephfit.core.values.configuration import Configuration
    from cephfit.core.values.sample import WorkloadSample
    from cephfit.sweep.evaluation import Record
    from cephfit.sweep.sweep_plan import Sweep


@click.command()
@sweep_option
@store_option
@run_of_sweep_option
@target_option("lab", "lab:NAME", "ceph", "ceph:NAME")
@click.option(
    "--configurations",
    metavar="A,B,...",
    shell_complete=configurations,
    help="Configurations to run, in addition to the default.  [default: all of the sweep]",
)
@workloads_option
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Runs of each workload on each configuration, each on a new volume.",
)
@click.option(
    "--seconds", type=Finite(min=1), default=10.0, show_default=True, help="Measured seconds of each run."
)
@click.option(
    "--traces",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for a recording of each workload's first run on the default; it is created.",
)
@keep_option
@needed_apply_option
@cluster_options
@json_option
def command(
    sweep_text: str,
    store: str,
    run_id: str | None,
    target_text: str,
    configurations: str | None,
    workloads: Sequence[str],
    rounds: int,
    seconds: float,
    traces: Path | None,
    keep: bool,
    apply: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Run several real workloads on every configuration of a measured sweep.

    The results show how good predictions are. In each round every configuration is applied once, in a shuffled
    order, and all workloads run on it, each on newly prepared data. Each run is stored when it ends, and an
    interrupted evaluation continues where it stopped. `--traces` records each workload on the default; `cephfit
    trace profile` makes profiles of the recordings. docs/evaluation.md describes the workloads of `make evaluate`.
    """
    from cephfit.cli.options.workload_choice import trial_of
    from cephfit.operations.measuring.sweep_measurement import run_of, target_of
    from cephfit.results.store.sample_store import Store
    from cephfit.sweep.declaration.sweep_file import find_sweep, read_sweep
    from cephfit.sweep.evaluation import evaluate

    sweep = read_sweep(find_sweep(sweep_text))
    chosen = _chosen(sweep, configurations)
    with sigterm_as_interrupt(), Store.open(store, writing=True) as opened, progress_display() as progress:
        run = run_of(opened, sweep, run_id)
        with target_of(
            run, target_text, store=opened, cluster=cluster, apply=apply, keep=keep, progress=progress
        ) as target:
            trials = [
                trial_of(
                    target,
                    workload,
                    scale=None,
                    repeats=rounds,
                    seconds=seconds,
                    seed=run.seed,
                    cache=sweep.measurement.cache,
                )
                for workload in workloads
            ]
            evaluate(
                target,
                chosen,
                trials,
                store=opened,
                run_id=run.run_id,
                progress=progress,
                record=_recorder(traces) if traces is not None else None,
            )
        names = {trial.workload.name for trial in trials}
        values = _values([(name, s) for name, s in opened.workload_samples(run.run_id) if name in names])
    if as_json:
        print_json({"run": run.run_id, "values": {name: dict(by) for name, by in values.items()}})
        return
    print_table(
        ("workload", *(c.name for c in chosen)),
        [[name, *(_mean(by.get(c.name, ())) for c in chosen)] for name, by in values.items()],
        right=range(1, len(chosen) + 1),
    )


def _chosen(sweep: Sweep, named: str | None) -> Sequence[Configuration]:
    """Return the configurations to run, the default first."""
    from cephfit.core.errors import InputError
    from cephfit.core.values.configuration import DEFAULT_CONFIGURATION

    known = {c.name: c for c in sweep.configurations}
    wanted = known if named is None else filter(None, (name.strip() for name in named.split(",")))
    names = tuple(dict.fromkeys([DEFAULT_CONFIGURATION, *wanted]))
    for name in names:
        if name not in known:
            raise InputError(
                f"there is no configuration {name!r}",
                where=f"sweep {sweep.name}",
                remedy=f"there are {', '.join(known)}",
            )
    return [known[name] for name in names]


def _recorder(folder: Path) -> Record:
    """Return what records a run into a subfolder with the workload's name, in place of an earlier recording."""
    from cephfit.traces.capturing.capture import SUFFIX, observing

    def record(workload: str, device: Path) -> AbstractContextManager[KeepOnly]:
        place = folder / workload
        place.mkdir(parents=True, exist_ok=True)
        for earlier in (*place.glob("*.blktrace.*"), *place.glob(f"*{SUFFIX}")):
            earlier.unlink()
        return observing(device, place)

    return record


def _values(samples: Sequence[tuple[str, WorkloadSample]]) -> Mapping[str, Mapping[str, Sequence[float]]]:
    """Return the values of valid runs by workload and configuration."""
    from cephfit.core.values.sample import State

    values: dict[str, dict[str, list[float]]] = {}
    for name, sample in samples:
        if sample.state is State.OK and sample.value is not None:
            values.setdefault(name, {}).setdefault(sample.configuration, []).append(sample.value)
    return values


def _mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.1f}" if values else ""
