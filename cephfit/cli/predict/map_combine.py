"""`cephfit map --combine`: which single improvements to combine, as a sweep file that tests them."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.output import print_json, print_table
from cephfit.cli.predict.map_prediction import MeasuredRun
from cephfit.core.errors import InputError
from cephfit.core.units import format_seconds

if TYPE_CHECKING:
    from cephfit.core.values.measurement import Measurement
    from cephfit.core.values.prediction import PredictionSet
    from cephfit.core.values.profile import Profile
    from cephfit.mapper.models.joint_prediction import CombinedGain
    from cephfit.operations.ranking import Ranked
    from cephfit.sweep.combination import Combinations
    from cephfit.sweep.sweep_plan import Sweep

_MOST_SINGLES = 6
_MOST_COMBINATIONS = 4
_SHOWN_CONFLICTS = 5
_LEAST_GAIN = 1.0
"""Points above the best single improvement that the optimistic end has at least: less cannot be shown."""


def show_combinations(asked: Ranked, measured: MeasuredRun | None, output: Path | None, *, as_json: bool) -> None:
    """Print which single improvements are worth combining, and write the sweep that tests them.

    Args:
        asked: the workload, the baselines, and how they are ranked.
        measured: the run of the baselines; None for a CSV file.
        output: sweep file to write; None: print it.
        as_json: print one JSON document.

    Raises:
        InputError: the settings of the configurations are unknown, or nothing was measured twice.
    """
    from cephfit.cli.output import write_whole
    from cephfit.mapper import predictor
    from cephfit.mapper.decisions.contrasts import ranked
    from cephfit.mapper.models.joint_prediction import JointPrediction, combined_gains, improvements
    from cephfit.mapper.models.mix_predictor import MixPredictor
    from cephfit.sweep.combination import possible_combinations

    if measured is None:
        raise InputError(
            "a CSV file does not contain the settings of configurations, so they cannot be combined",
            where=asked.location,
            remedy="give the store that `cephfit sweep run` wrote",
        )
    profile, baselines = asked.profile, asked.baselines
    found_predictor = predictor(asked.model, confidence=asked.confidence, with_error=True)
    assert isinstance(found_predictor, MixPredictor), "all models are of mixes"
    predictions = ranked(found_predictor, profile, baselines)
    joint = JointPrediction.of(found_predictor, profile, baselines)
    settings = {c.name: c for c in measured.sweep.configurations if c.settings}
    chances = {name: chance for name, chance in improvements(joint, predictions).items() if name in settings}
    possible = possible_combinations([settings[name] for name in [*chances][:_MOST_SINGLES]])
    gains = combined_gains(joint, predictions, [tuple(c.name for c in chosen) for chosen in possible.sets])
    best_single = max((predictions.of(name).relative for name in chances), default=100.0)
    worth = sorted((g for g in gains if g.optimistic >= best_single + _LEAST_GAIN), key=lambda g: -g.optimistic)
    chosen = worth[:_MOST_COMBINATIONS]
    sweep = _sweep(chosen, possible, predictions, measured, profile) if chosen else None
    document = _document(profile, chances, possible, gains, chosen, predictions, sweep)
    if sweep is not None and output is not None:
        write_whole(output, sweep.text, what="the sweep file")
        document["file"] = str(output)
    if as_json:
        print_json(document)
        return
    # Without a file, the output is the sweep file; its comments hold everything else.
    mark = "# " if sweep is not None and output is None else ""
    click.echo(mark + document["sentence"])
    if mark and sweep is not None:
        for line in _lines(document):
            click.echo(mark + line)
        click.echo(sweep.text, nl=False)
        return
    click.echo()
    _print(document)
    if output is not None:
        click.echo(
            f"{output}: next: cephfit sweep run {shlex.quote(str(output))} --target {measured.run.target}"
            if sweep is not None
            else f"{output} is not written"
        )


def _sweep(
    chosen: list[CombinedGain],
    possible: Combinations,
    predictions: PredictionSet,
    measured: MeasuredRun,
    profile: Profile,
) -> Sweep:
    """Return the sweep of the combinations, and of their single parts as controls."""
    from cephfit.sweep.combination import merged, sweep_of

    sets = {tuple(c.name for c in parts): parts for parts in possible.sets}
    singles = dict.fromkeys(c for gain in chosen for c in sets[gain.names])
    together = [merged(sets[gain.names], _why(gain, predictions)) for gain in chosen]
    return sweep_of(
        measured.sweep,
        [*singles, *together],
        _measurement(measured.sweep, profile, predictions),
        name=f"{measured.sweep.name}-combined",
        description=f"Combinations of improvements for {profile.name}, with the single ones as controls.",
    )


def _why(gain: CombinedGain, predictions: PredictionSet) -> str:
    return (
        f"{' and '.join(gain.names)} together: expected {gain.pessimistic:.0f} to {gain.optimistic:.0f} "
        f"(default = 100), {100 * predictions.confidence:g} % interval "
        f"{_range(gain.pessimistic_low, gain.optimistic_high)}: between the better single one "
        f"({gain.better_single}) and independent effects, whose ratios multiply in every cell"
    )


def _range(low: float, high: float) -> str:
    return f"{low:.0f} to {high:.0f}" if math.isfinite(high) else f"above {low:.0f}"


def _measurement(sweep: Sweep, profile: Profile, predictions: PredictionSet) -> Measurement:
    """Return the cells and loads that carry the workload's weight; without demands, all cells that it uses."""
    from cephfit.core.values.cells import CELLS
    from cephfit.sweep.proposal import propose

    base = sweep.measurement
    if profile.demands:
        return propose(profile, base).measurement
    used = {reason.cell for p in predictions.predictions for reason in p.reasons}
    return replace(base.under(""), cells=tuple(cell for cell in CELLS if cell in used))


def _document(
    profile: Profile,
    chances: dict[str, float],
    possible: Combinations,
    gains: tuple[CombinedGain, ...],
    chosen: list[CombinedGain],
    predictions: PredictionSet,
    sweep: Sweep | None,
) -> dict[str, Any]:
    from cephfit.sweep.sweep_plan import expected_seconds, plan_of

    return {
        "workload": profile.name,
        "confidence": predictions.confidence,
        "improvements": [
            {
                "configuration": name,
                "relative": (p := predictions.of(name)).relative,
                "low": p.low,
                "high": p.high if math.isfinite(p.high) else None,
                "probability_better": chance,
            }
            for name, chance in chances.items()
        ],
        "combinations": [
            {
                "configurations": list(gain.names),
                "better_single": gain.better_single,
                "pessimistic": gain.pessimistic,
                "pessimistic_low": gain.pessimistic_low,
                "optimistic": gain.optimistic,
                "optimistic_high": gain.optimistic_high if math.isfinite(gain.optimistic_high) else None,
                "measured": gain in chosen,
            }
            for gain in gains
        ],
        "conflicts": [{"configurations": list(c.names), "reason": c.reason} for c in possible.conflicts],
        "sentence": _sentence(chances, gains, chosen),
        "expected_seconds": None if sweep is None else round(expected_seconds(sweep, plan_of(sweep)), 1),
        "sweep": None if sweep is None else sweep.text,
        "file": None,
    }


def _sentence(chances: dict[str, float], gains: tuple[CombinedGain, ...], chosen: list[CombinedGain]) -> str:
    if not chances:
        return "Nothing to combine: no configuration is likely better than the default"
    if len(chances) == 1:
        return f"Nothing to combine: only {next(iter(chances))} is likely better than the default"
    if not gains:
        return f"Nothing to combine: the settings of {', '.join(chances)} conflict or overlap"
    if not chosen:
        return "Nothing worth combining: even independent effects would gain nothing over the best single one"
    best = chosen[0]
    return (
        f"Worth combining: {' and '.join(best.names)}, expected {best.pessimistic:.0f} to {best.optimistic:.0f} "
        f"(default = 100; interval {_range(best.pessimistic_low, best.optimistic_high)})"
    )


def _lines(document: dict[str, Any]) -> list[str]:
    """Return what a sweep file does not say itself, as lines."""
    conflicts = document["conflicts"]
    lines = [
        f"not combined: {' and '.join(c['configurations'])}: {c['reason']}" for c in conflicts[:_SHOWN_CONFLICTS]
    ]
    if len(conflicts) > _SHOWN_CONFLICTS:
        lines.append(f"not combined: {len(conflicts) - _SHOWN_CONFLICTS} more pairs (--json names all)")
    left = [" and ".join(c["configurations"]) for c in document["combinations"] if not c["measured"]]
    lines += [f"not worth a test, or one too many: {', '.join(left)}"] if left else []
    if document["expected_seconds"] is not None:
        lines.append(f"about {format_seconds(document['expected_seconds'])}")
    return lines


def _print(document: dict[str, Any]) -> None:
    if document["improvements"]:
        print_table(
            ("improvement", "relative", f"{100 * document['confidence']:g} % interval", "probably better"),
            [
                (
                    row["configuration"],
                    f"{row['relative']:.0f}",
                    _range(row["low"], row["high"] or math.inf),
                    f"{100 * row['probability_better']:.0f} %",
                )
                for row in document["improvements"]
            ],
            right=(1, 2, 3),
        )
        click.echo()
    if document["combinations"]:
        print_table(
            ("combination", "pessimistic", "optimistic", "interval", "in the sweep"),
            [
                (
                    " + ".join(row["configurations"]),
                    f"{row['pessimistic']:.0f}",
                    f"{row['optimistic']:.0f}",
                    _range(row["pessimistic_low"], row["optimistic_high"] or math.inf),
                    "yes" if row["measured"] else "no",
                )
                for row in document["combinations"]
            ],
            right=(1, 2, 3),
        )
        click.echo("Settings that work against each other may be worse than this range, so measure them")
    for line in _lines(document):
        click.echo(f"Note: {line}")
