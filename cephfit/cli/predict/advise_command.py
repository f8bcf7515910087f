"""`cephfit advise`: a configuration and a target for a workload on a network, with reasons in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import baselines_option, confidence_option, load_option, model_option
from cephfit.cli.output import json_option, print_json
from cephfit.core.units import parse_nbytes, whole_number

if TYPE_CHECKING:
    from cephfit.core.values.baseline import Baselines
    from cephfit.mapper.extrapolation.distance import Distance
    from cephfit.mapper.extrapolation.distant_workload import Advice

_TCP = ("tcp=cubic", "tcp=reno", "tcp=bbr")
_VALUE = re.compile(r"([0-9]*\.?[0-9]+)([a-z%]*)")
_UNITS: Mapping[str, Mapping[str, float]] = {
    "rtt": {"ms": 1e-3, "s": 1.0, "us": 1e-6},
    "loss": {"%": 0.01},
    "bandwidth": {"mbit": 1e6 / 8, "gbit": 1e9 / 8},
}
_EXAMPLES = "rtt=20ms, loss=1%, bandwidth=100mbit, window=256K, connections=4, tcp=bbr"


@click.command("advise", short_help="Advice in words for workloads on a network.")
@click.argument("profile_files", metavar="PROFILE...", nargs=-1, required=True)
@baselines_option
@load_option
@model_option
@confidence_option
@click.option(
    "--network",
    "network",
    metavar="KEY=VALUE,...",
    help="What the network adds to the one of the measurement: rtt=20ms, loss=1%, bandwidth=100mbit, window=256K "
    "and tcp=bbr as TCP's, connections=4 that share the traffic.",
)
@json_option
def command(
    profile_files: tuple[str, ...],
    location: str,
    load: str,
    model: str,
    confidence: float,
    network: str | None,
    as_json: bool,
) -> None:
    """Say which configuration fits each workload, why, what would change that, and how sure it is.

    Where STORE has runs on several targets, the newest of each is used, and the target that serves most of the
    workload's mix is named too. docs/distance.md describes the model of the network.
    """
    from dataclasses import replace
    from pathlib import Path

    from cephfit.core.profile_files import read_profile
    from cephfit.mapper import predictor
    from cephfit.mapper.extrapolation.distant_workload import advised, fastest, of_targets, other_targets

    distance = network_of(network)
    measured = _by_target(location, load)
    model_predictor = predictor(model, confidence=confidence, with_error=True)
    documents = []
    for file in profile_files:
        profile = read_profile(Path(file))
        advices = [advised(model_predictor, profile, b, distance, target=t) for t, b in measured.items()]
        first, rivals = fastest(advices)
        if len(advices) > 1:
            others = other_targets(model_predictor, profile, measured, distance, first.target)
            reasons = (*of_targets(advices), *first.reasons)
            first = replace(first, reasons=reasons, changes=(*others, *first.changes))
        documents.append(
            {"advice": first.to_json(), "as_fast": list(rivals), "targets": [a.to_json() for a in advices]}
        )
        if not as_json:
            _print(first, rivals, n_targets=len(advices))
    if as_json:
        print_json({"workloads": documents})


def network_of(text: str | None) -> Distance:
    """Read ``rtt=20ms,loss=1%,bandwidth=100mbit,window=256K,connections=4,tcp=bbr``; all parts are optional.

    Raises:
        InputError: a part is not one of these, or ``tcp`` is the only one.
    """
    from cephfit.core.errors import InputError
    from cephfit.mapper.extrapolation.distance import Distance

    values: dict[str, float] = {}
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    tcp = [part for part in parts if part in _TCP]
    for part in [*tcp[1:], *(part for part in parts if part not in _TCP)]:
        key, _, value = part.partition("=")
        number = _number(key, value.strip())
        if number is None or key in values:
            raise InputError(
                f"{part!r} is not a property of a network",
                where="--network",
                remedy=f"write parts such as {_EXAMPLES}, each once, with commas",
            )
        values[key] = number
    if parts and not values.keys() & _UNITS.keys():
        raise InputError(
            f"{parts[0]!r} alone is not a property of a network: it matters only at a distance or with losses",
            where="--network",
            remedy=f"add the network's properties, such as rtt=20ms,loss=1%,{parts[0]}",
        )
    named: dict[str, Any] = {"one_way_seconds": values.get("rtt", 0.0) / 2, "loss": values.get("loss", 0.0)}
    named["loss_is_congestion"] = _TCP[-1] not in tcp
    names = {"bandwidth": "nbytes_per_s", "window": "window_nbytes", "connections": "connections"}
    named |= {name: values[key] for key, name in names.items() if key in values}
    return Distance(**named)


def _number(key: str, value: str) -> float | None:
    """Return a property in seconds, bytes or bytes per second, as a share or as a count; None if it is none."""
    if key == "window":
        return parse_nbytes(value, where="--network window")
    if key == "connections":
        return whole_number(value)
    found = _VALUE.fullmatch(value.lower())
    factor = _UNITS.get(key, {}).get(found[2]) if found else None
    return None if found is None or factor is None else float(found[1]) * factor


def _by_target(location: str, load: str) -> dict[str, Baselines]:
    """Return the baselines of the newest run of blocks on each target; of a CSV file, its own."""
    from cephfit.results import open_baselines
    from cephfit.results.store.sample_store import Store
    from cephfit.results.tables.baseline_csv import is_store

    if not is_store(location):
        return {"": open_baselines(location, None, load)}
    with Store.open(location) as store:
        runs = [run for run in reversed(store.runs()) if not store.measures_files(run.run_id)]
        newest = {run.target: run.run_id for run in runs}
    if not newest:
        return {"": open_baselines(location, None, load)}  # refused: there is no run
    return {target: open_baselines(location, run_id, load) for target, run_id in newest.items()}


def _print(first: Advice, rivals: tuple[str, ...], *, n_targets: int) -> None:
    where = f" on {first.target}" if n_targets > 1 else ""
    click.echo(f"{first.predictions.profile}: use {first.best}{where}")
    click.echo(f"  How sure: {first.certainty}")
    if rivals:
        click.echo(f"  May be as fast: {', '.join(rivals)}")
    for title, sentences in (("Because", first.reasons), ("What would change it", first.changes)):
        if not sentences:
            continue
        click.echo(f"  {title}:")
        for sentence in sentences:
            click.echo(f"    - {sentence}")
    for note in first.predictions.notes:
        click.echo(f"  Note: {note}")
