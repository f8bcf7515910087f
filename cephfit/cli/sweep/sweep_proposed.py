"""`cephfit sweep plan --for`: propose what to measure for a workload."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.terminal.output import print_json
from cephfit.core.errors import InputError
from cephfit.core.units import format_seconds

if TYPE_CHECKING:
    from cephfit.core.values.measurement import Measurement
    from cephfit.sweep.proposal import Kind, Proposal
    from cephfit.sweep.sweep_plan import Sweep

_SHOWN_LEFT_OUT = 6


def show_proposal(file: str, profile_file: Path, output: Path | None, *, as_json: bool) -> None:
    """Show the measurement proposed for a workload, or write it as a sweep file.

    Args:
        file: sweep file or bundled sweep that gives the configurations.
        profile_file: of the workload.
        output: sweep file to write; None to print the section alone.
        as_json: print one JSON document.

    Raises:
        InputError: a file cannot be read, or the profile has no demands.
    """
    from cephfit.cli.terminal.written_files import write_whole
    from cephfit.core.profile_files import read_profile
    from cephfit.sweep.declaration.sweep_file import find_sweep, parse_sweep, read_sweep
    from cephfit.sweep.proposal import as_yaml, propose, with_measurement

    path = find_sweep(file)
    if output is not None and output.exists() and output.samefile(path):
        raise InputError(
            "this sweep file is read by the same command, and would be lost",
            where=str(output),
            remedy="give another path with -o",
        )
    sweep = read_sweep(path)
    proposal = propose(read_profile(profile_file), sweep.measurement)
    section = as_yaml(proposal.measurement)
    text = with_measurement(sweep.text, section)
    proposed = parse_sweep(text, file=str(output or path))
    document = _document(proposal, section, sweep, proposed)
    if output is not None:
        write_whole(output, text, what="the sweep file")
        document["file"] = str(output)
    if as_json:
        print_json(document)
    elif output is None:
        for line in _lines(proposal, document):
            click.echo(f"# {line}")
        click.echo(section, nl=False)
    else:
        for line in _lines(proposal, document):
            click.echo(line)
        click.echo(f"{output}: next: cephfit sweep run {shlex.quote(str(output))} --target TARGET")


def _document(proposal: Proposal, section: str, sweep: Sweep, proposed: Sweep) -> dict[str, Any]:
    everything = proposed.changed_to(proposed.configurations, proposal.everything)
    return {
        "workload": proposal.workload,
        "weighed_by": proposal.weighed_by,
        "covered": proposal.covered,
        "kinds": [_kind(kind) for kind in proposal.kinds],
        "left_out": [_kind(kind) for kind in proposal.left_out],
        "notes": list(proposal.notes),
        "measurement": section,
        "runs": _n_runs(proposed.measurement),
        "runs_of_everything": _n_runs(proposal.everything),
        "expected_seconds": _seconds(proposed),
        "expected_seconds_of_everything": _seconds(everything),
        "expected_seconds_of_the_sweep": _seconds(sweep),
        "file": None,
    }


def _kind(kind: Kind) -> dict[str, Any]:
    cell = kind.cell
    return {
        "cell": str(cell.bin_cell),
        "iodepth": cell.iodepth,
        "align_nbytes": cell.align_nbytes,
        "sync": cell.sync,
        "weight": kind.weight,
    }


def _n_runs(measurement: Measurement) -> int:
    """Return the number of fio runs of one configuration in one round."""
    return sum(len(measurement.under(name).cells) for name in measurement.load_names)


def _seconds(sweep: Sweep) -> float:
    from cephfit.sweep.sweep_plan import expected_seconds, plan_of

    return round(expected_seconds(sweep, plan_of(sweep)), 1)


def _lines(proposal: Proposal, document: dict[str, Any]) -> list[str]:
    m = proposal.measurement
    lines = [
        f"for {proposal.workload}: these kinds of access carry {100 * proposal.covered:.0f} % of its "
        f"{proposal.weighed_by}:",
        *(f"  {100 * kind.weight:4.1f} %  {kind.cell}" for kind in proposal.kinds),
    ]
    if proposal.left_out:
        shown = ", ".join(f"{k.cell} {100 * k.weight:.1f} %" for k in proposal.left_out[:_SHOWN_LEFT_OUT])
        more = len(proposal.left_out) - _SHOWN_LEFT_OUT
        lines.append(f"not measured: {shown}{f' and {more} more' if more > 0 else ''}")
    lines += proposal.notes
    lines.append(
        f"{document['runs']} fio runs per configuration and round, about "
        f"{format_seconds(document['expected_seconds'])} in all"
    )
    lines.append(
        f"all 20 cells under the same {len(m.load_names)} loads: {document['runs_of_everything']} runs, about "
        f"{format_seconds(document['expected_seconds_of_everything'])}; the sweep as it is: about "
        f"{format_seconds(document['expected_seconds_of_the_sweep'])}"
    )
    return lines
