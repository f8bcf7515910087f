"""`cephfit balance`: one configuration for several workloads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import (
    baselines_option,
    confidence_option,
    load_option,
    model_option,
    run_option,
)
from cephfit.cli.options.workload_choice import weighted_profile
from cephfit.cli.output import json_option, print_json, print_table, range_text

if TYPE_CHECKING:
    from cephfit.core.values.supply import Estimate
    from cephfit.mapper.decisions.balance import Balance, Balanced


@click.command("balance", short_help="Find one configuration for several workloads.")
@click.argument("workloads", metavar="PROFILE[:WEIGHT]...", nargs=-1, required=True)
@baselines_option
@run_option
@load_option
@model_option
@confidence_option
@json_option
def command(
    workloads: tuple[str, ...],
    location: str,
    run_id: str | None,
    load: str,
    model: str,
    confidence: float,
    as_json: bool,
) -> None:
    """Find the one configuration that fits several workloads together.

    Two answers: the best by the weighted geometric mean of the workloads' performances, and the best in the worst
    case, which is the workload that loses most against its own best configuration. WEIGHT is 1 if missing.
    """
    from cephfit.mapper import predictor
    from cephfit.mapper.decisions.balance import Weighted, balanced
    from cephfit.results import open_baselines
    from cephfit.results.report.run_notes import may_be_unfinished, run_document, run_notes

    given = [Weighted(*weighted_profile(text)) for text in workloads]
    measured = run_document(location, run_id)
    run_id = measured["run"] or run_id  # the newest now, even if another run begins meanwhile
    with may_be_unfinished(measured):
        found = balanced(
            given,
            open_baselines(location, run_id, load),
            predictor(model, confidence=confidence, with_error=True),
            confidence,
        )
    if as_json:
        print_json({"model": model, "confidence": confidence, **found.to_json(), "measured": measured})
        return
    _print(found)
    click.echo()
    click.echo(
        f"{100 * confidence:g} % intervals, joint over all workloads and configurations; the default = 100; model "
        f"{model}. Weighted: geometric mean, whose order does not depend on the reference."
    )
    for note in (*run_notes(measured), *found.notes):
        click.echo(f"Note: {note}")


def _print(found: Balance) -> None:
    best, worst = found.of(found.best), found.of(found.best_worst)
    shares = ", ".join(f"{100 * share:.0f} % {name}" for name, share in found.workloads.items())
    click.echo(f"Best for {shares}: {best.configuration}, {_ends(best.weighted)}")
    if found.as_good:
        click.echo(f"Not distinguishable from {best.configuration}: {', '.join(found.as_good)}")
    click.echo(
        f"Best in the worst case: {worst.configuration}; "
        + (
            "no other one has a higher prediction for any workload"
            if all(share.own_best == worst.configuration for share in worst.shares)
            else f"{worst.worst_workload} keeps {_ends(worst.worst)} % of its own best"
        )
    )
    if found.as_good_worst:
        click.echo(f"Not distinguishable from it: {', '.join(found.as_good_worst)}")
    click.echo()
    names = list(found.workloads)
    columns = ["configuration", "weighted", "interval", *names, "worst case"]
    rows = [
        [
            b.configuration,
            f"{b.weighted.value:.1f}",
            range_text(b.weighted.low, b.weighted.high),
            *(f"{share.relative.value:.1f}" for share in b.shares),
            f"{b.worst.value:.0f} %",
        ]
        for b in found.configurations
    ]
    print_table(columns, rows, right=range(1, len(columns)))
    for chosen in [best] if best is worst else [best, worst]:
        click.echo()
        _print_given_up(chosen)


def _print_given_up(chosen: Balanced) -> None:
    click.echo(f"What each workload gives up under {chosen.configuration}, against its own best:")
    rows = []
    for share in chosen.shares:
        if share.own_best == chosen.configuration:
            alike = f" (not distinguishable from {', '.join(share.as_good)})" if share.as_good else ""
            lost, verdict = "", f"its own best{alike}"
        else:
            lost, verdict = _lost(share.of_best), "slower" if share.is_given_up else "not distinguishable"
        rows.append([f"  {share.workload}", share.own_best, lost, verdict])
    print_table(["  workload", "own best", "gives up", ""], rows, right=(2,))


def _lost(of_best: Estimate) -> str:
    ends = f"{100 - of_best.high:.1f} to {100 - of_best.low:.1f}" if math.isfinite(of_best.high) else "unknown"
    return f"{100 - of_best.value:.1f} % ({ends})"


def _ends(estimate: Estimate) -> str:
    return f"{estimate.value:.1f} ({range_text(estimate.low, estimate.high)})"
