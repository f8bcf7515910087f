"""`cephfit map --next`: the single measurement that would change the answer most."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.output import print_json, print_table
from cephfit.cli.predict.map_prediction import MeasuredRun, example_file
from cephfit.core.units import format_seconds
from cephfit.core.values.cells import Cell

if TYPE_CHECKING:
    from cephfit.core.values.profile import Profile
    from cephfit.mapper.decisions.next_measurement import Candidate, NextMeasurement
    from cephfit.operations.ranking import Ranked
    from cephfit.sweep.sweep_plan import Sweep

_SHOWN = 5
_PROBE_REPEATS, _PROBE_SECONDS = 3, 20.0
"""Defaults of `cephfit probe`."""


def show_next(
    profile_file: Path, asked: Ranked, measured: MeasuredRun | None, output: Path | None, *, as_json: bool
) -> None:
    """Print the measurement that is expected to change the answer most, with its command.

    Args:
        profile_file: as given on the command line.
        asked: the workload, the baselines, and how they are ranked.
        measured: the run of the baselines; None for a CSV file, which does not say how it was measured.
        output: sweep file to write, where the measurement is a round of a cell; None: print it.
        as_json: print one JSON document.

    Raises:
        InputError: nothing can be compared, or nothing was measured twice.
    """
    from cephfit.cli.output import write_whole
    from cephfit.mapper import predictor
    from cephfit.mapper.decisions.next_measurement import next_measurement
    from cephfit.mapper.models.joint_prediction import JointPrediction
    from cephfit.mapper.models.mix_predictor import MixPredictor

    profile = asked.profile
    found_predictor = predictor(asked.model, confidence=asked.confidence, with_error=True)
    assert isinstance(found_predictor, MixPredictor), "all models are of mixes"
    joint = JointPrediction.of(found_predictor, profile, asked.baselines)
    found = next_measurement(joint, with_probe=measured is not None and measured.can_probe)
    sweeps = {c: _sweep(c, measured, asked.load, profile) for c in found.candidates[:_SHOWN]}
    document = _document(found, profile, sweeps)
    best = found.best
    sweep = sweeps.get(best) if best is not None else None
    if best is not None and measured is not None:
        document["commands"] = _commands(best, measured, profile_file, output)
    if output is not None and sweep is not None:
        write_whole(output, sweep.text, what="the sweep file")
        document["file"] = str(output)
    if as_json:
        print_json(document)
        return
    click.echo(document["sentence"])
    click.echo()
    _print_table(found, document)
    if best is None:
        if output is not None:
            click.echo(f"{output} is not written: there is nothing to measure")
        return
    for command in document["commands"]:
        click.echo(f"Then: {command}" if command is not document["commands"][0] else f"Run: {command}")
    if output is not None and sweep is None:
        click.echo(f"{output} is not written: this measurement needs no sweep file")
    if sweep is not None and output is None:
        click.echo(f"\n# {example_file(None)} (write it with -o)")
        click.echo(sweep.text, nl=False)


def _sweep(candidate: Candidate, measured: MeasuredRun | None, load: str, profile: Profile) -> Sweep | None:
    """Return the sweep that makes a measurement; None for a probe, and where the sweep is unknown."""
    from cephfit.sweep.combination import sweep_of

    if measured is None or candidate.cell is None:
        return None
    m = measured.sweep.measurement
    its_load, cell = load, candidate.cell
    if not isinstance(cell, Cell):
        of_cell = cell.bin_cell
        loads = [n for n in m.load_names if of_cell in m.under(n).cells and m.under(n).run_as(of_cell) == cell]
        if not loads:
            return None
        its_load, cell = loads[0], of_cell
    # Another seed: other offsets in the same volume, as in any other round.
    one = replace(m.under(its_load), cells=(cell,), repeats=1, seed=m.seed + 1)
    return sweep_of(
        measured.sweep,
        [measured.sweep.configuration(name) for name in candidate.configurations],
        one,
        name=f"{measured.sweep.name}-next",
        description=f"One more round of {candidate.cell} for {profile.name}, next to run {measured.run.run_id}.",
    )


def _document(found: NextMeasurement, profile: Profile, sweeps: dict[Candidate, Sweep | None]) -> dict[str, Any]:
    from cephfit.mapper.decisions.next_measurement import MARGIN

    rows = [
        {
            "kind": c.kind.value,
            "configurations": list(c.configurations),
            "cell": None if c.cell is None else str(c.cell),
            "wrong": c.wrong,
            "loss": c.loss,
            "scatter_wrong": c.scatter_wrong,
            "minutes": _minutes(c, sweeps[c]),
        }
        for c in sweeps
    ]
    return {
        "workload": profile.name,
        "choice": found.choice,
        "rivals": [{"configuration": name, "probability": chance} for name, chance in found.rivals],
        "margin": MARGIN,
        "wrong": found.wrong,
        "loss": found.loss,
        "scatter_wrong": found.scatter_wrong,
        "next": rows[0] if found.best is not None else None,
        "candidates": rows,
        "sentence": _sentence(found, _minutes(found.best, sweeps[found.best]) if found.best else None),
        "commands": [],
        "sweep": sweep.text if found.best is not None and (sweep := sweeps[found.best]) is not None else None,
        "file": None,
    }


def _minutes(candidate: Candidate, sweep: Sweep | None) -> float | None:
    """Return the expected minutes of a measurement; None if its sweep is unknown."""
    from cephfit.core.values.measurement import ASSUMED_TIMES
    from cephfit.sweep.sweep_plan import expected_seconds, plan_of

    if sweep is not None:
        return expected_seconds(sweep, plan_of(sweep)) / 60
    if candidate.cell is not None:
        return None
    runs = len(candidate.configurations) * _PROBE_REPEATS
    return runs * (_PROBE_SECONDS + ASSUMED_TIMES.apply_seconds + ASSUMED_TIMES.cell_seconds) / 60


def _sentence(found: NextMeasurement, minutes: float | None) -> str:
    best = found.best
    if not found.rivals:
        return f"Nothing to measure: {found.choice} is the best, and no other configuration is likely to be better"
    wrong = (
        f"{found.choice}, the highest prediction, is a wrong choice with a probability of {_percent(found.wrong)}"
    )
    if best is None:
        lowest = min((c.wrong for c in found.candidates), default=found.wrong)
        return (
            f"No single measurement is expected to change the answer: {wrong}, and after the most useful one it "
            f"would still be {_percent(lowest)}"
        )
    time = "" if minutes is None else f" (about {format_seconds(60 * minutes)})"
    return f"Next: {_what(best)}{time}. {wrong}; after it, {_percent(best.wrong)} are expected"


def _what(candidate: Candidate) -> str:
    names = ", ".join(candidate.configurations)
    if candidate.cell is None:
        return f"a probe: run a clone of the workload on {names}"
    if candidate.kind.value == "missing cell":
        return f"measure {candidate.cell} under {names}, where it is missing"
    return f"measure {candidate.cell} once more under {names}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _print_table(found: NextMeasurement, document: dict[str, Any]) -> None:
    if not found.rivals:
        return
    print_table(
        ("may be better", "probability that it is the best"),
        [(name, _percent(chance)) for name, chance in found.rivals],
        right=(1,),
    )
    if document["candidates"]:
        click.echo()
        print_table(
            (
                "measurement",
                "cell",
                "configurations",
                "takes",
                "wrong choice",
                "expected loss",
                "wrong by scatter alone",
            ),
            [
                ("none", "", "", "", _percent(found.wrong), _percent(found.loss), _percent(found.scatter_wrong)),
                *map(_row, document["candidates"]),
            ],
            right=(3, 4, 5, 6),
        )
    click.echo(
        f"A choice is wrong if another configuration is more than {100 * document['margin']:g} % better. "
        "Both probabilities are those after the measurement; the first contains the model's own error, which only "
        "a probe reduces"
    )


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    time = "unknown" if row["minutes"] is None else format_seconds(60 * row["minutes"])
    names = ", ".join(row["configurations"])
    return (
        row["kind"],
        row["cell"] or "",
        names,
        time,
        _percent(row["wrong"]),
        _percent(row["loss"]),
        _percent(row["scatter_wrong"]),
    )


def _commands(best: Candidate, measured: MeasuredRun, profile_file: Path, output: Path | None) -> list[str]:
    """Return the commands that make a measurement and map the workload again."""
    store, run, profile = shlex.quote(measured.store), measured.run.run_id, shlex.quote(str(profile_file))
    if best.cell is None:
        from cephfit.sweep.declaration.sweep_file import bundled_sweeps

        name = measured.sweep.name
        file = name if name in set(bundled_sweeps()) else "SWEEP.yaml"
        return [
            f"cephfit probe {profile} --sweep {file} --store {store} --run {run} --target {measured.run.target} "
            f"--candidates {len(best.configurations)}"
        ]
    file = shlex.quote(example_file(output))
    return [
        f"cephfit sweep run {file} --target {measured.target} --store {store}",
        f"cephfit map {profile} --baselines {store} --run {run} --with-run RUN, with the id of the new run",
    ]
