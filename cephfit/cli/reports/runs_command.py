"""`cephfit runs`: list, show, rm, export, merge."""

from __future__ import annotations

import sys
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import store_option
from cephfit.cli.output import OUTPUT_FILE, SentenceGroup, json_option, print_json, print_table, refuse_lost_input
from cephfit.core.errors import InputError
from cephfit.core.values.sample import State, without_collector

if TYPE_CHECKING:
    pass

_CSV, _SQLITE, _PARQUET = "csv", "sqlite", "parquet"
_STATES = tuple(state.value for state in State)
_FORMATS = {"": _CSV, ".csv": _CSV, ".parquet": _PARQUET, ".sqlite": _SQLITE, ".sqlite3": _SQLITE, ".db": _SQLITE}

run_argument = click.argument("name", metavar="RUN")


@click.group(name="runs", cls=SentenceGroup)
def command() -> None:
    """The runs in a store: list, show, rm, export, merge.

    RUN is the id of a run, the beginning of an id that no other run shares, or `latest`.
    """


@command.command("list")
@store_option
@json_option
def list_runs(store: str, as_json: bool) -> None:
    """List the runs, newest first. All numbers except the last count samples, one per fio run and client."""
    from cephfit.operations.measuring.run_status import run_summary
    from cephfit.results.report import formatting
    from cephfit.results.store.sample_store import Store

    with Store.open(store) as opened:
        documents = [run_summary(opened, run) for run in opened.runs()]
    if as_json:
        print_json(documents)
        return
    if not documents:
        click.echo("the store has no runs yet; measure something: `cephfit sweep run`")
        return
    headers = ("run", "sweep", "target", "begun", "state", "measured", *_STATES, "configurations")
    rows = [
        (
            *(d["run"], d["sweep"], d["target"], formatting.moment(d["begun_ns"]), _state(d), _progress(d)),
            *(str(d["samples"][state]) for state in _STATES),
            str(d["configurations"]),
        )
        for d in documents
    ]
    print_table(headers, rows, right=range(5, len(headers)))


@command.command()
@run_argument
@store_option
@json_option
def show(name: str, store: str, as_json: bool) -> None:
    """Show what a run was: cluster, versions, settings of its configurations, samples, saved documents."""
    from cephfit.operations.measuring.run_status import run_description
    from cephfit.results.store.sample_store import Store

    with Store.open(store) as opened:
        document = run_description(opened, opened.find_run(name))
    if as_json:
        print_json(document)
    else:
        _print(document)


@command.command()
@run_argument
@store_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--force", is_flag=True, help="Delete it even if a process of another machine may still be measuring it."
)
@json_option
def rm(name: str, store: str, yes: bool, force: bool, as_json: bool) -> None:
    """Delete a run with its samples, predictions and verifications; refuses a run that is being measured."""
    from cephfit.results.store.sample_store import Store

    with Store.open(store, writing=True) as opened:
        run = opened.find_run(name)
        samples = sum(opened.counts(run.run_id).values())
        what = f"run {run.run_id} of {run.sweep_name} on {run.target} with {samples} samples"
        if not yes:
            if as_json:
                raise InputError("--json cannot ask whether to delete", where="--json", remedy="add --yes")
            if not _confirmed(f"Delete {what}?"):
                click.echo("nothing was deleted")
                click.get_current_context().exit(1)
        opened.delete_run(run.run_id, force=force)
    if as_json:
        print_json({"run": run.run_id, "deleted": True, "samples": samples})
    else:
        click.echo(f"deleted {what}")


@command.command()
@run_argument
@store_option
@click.option(
    "-o", "--output", required=True, type=OUTPUT_FILE, help="File to write; - for standard output (CSV only)."
)
@click.option(
    "--format",
    "style",
    type=click.Choice((_CSV, _PARQUET, _SQLITE)),
    help="The samples as CSV or Parquet, or a store with only this run.  [default: by the file's suffix, csv "
    "without one]",
)
def export(name: str, store: str, output: Path, style: str | None) -> None:
    """Write the samples of a run as CSV or Parquet, or the whole run as a separate store (FILE.sqlite).

    Parquet needs pip install 'cephfit[parquet]'; docs/runs.md has its columns.
    """
    from cephfit.cli.output import write_whole, written_whole
    from cephfit.results.store.sample_store import Store
    from cephfit.results.tables.sample_tables import samples_csv, write_samples

    style = style or _FORMATS.get(output.suffix.lower())
    if style is None:
        raise InputError(
            "cannot infer the format from the file name",
            where=str(output),
            remedy="use --format, or a name that ends with .csv, .parquet or .sqlite",
        )
    to_stdout = str(output) == "-"
    if to_stdout and style != _CSV:
        raise InputError(f"{style} cannot go to standard output", where="-o -", remedy="name a file with -o")
    refuse_lost_input(output)
    with Store.open(store) as opened, without_collector():
        run = opened.find_run(name)
        if style == _SQLITE:
            with written_whole(output, what="the store") as place, Store.open(place, create=True) as copy:
                opened.copy_run(run.run_id, copy)
                copy.close()  # its log is merged into the file before the file is renamed
            return
        if style == _PARQUET:
            with written_whole(output, what="the samples") as place:
                write_samples(place, opened.samples(run.run_id), run)
            return
        text = samples_csv(opened.samples(run.run_id), run)
    if to_stdout:
        click.echo(text, nl=False)
    else:
        write_whole(output, text, what="the samples")


@command.command()
@click.argument("other", metavar="OTHER_STORE")
@store_option
@json_option
def merge(other: str, store: str, as_json: bool) -> None:
    """Add the runs of OTHER_STORE to the store, which is created if it does not exist.

    Runs that both have gain the samples and documents that the store lacks, so a second merge adds nothing. The
    merge is one transaction: if it fails or is killed, the store is unchanged. OTHER_STORE is only read.
    """
    from cephfit.results.store.sample_store import Store

    with Store.open(other) as source, Store.open(store, create=True, writing=True) as opened:
        merged = opened.merge(source)
    if as_json:
        words = ("run", "new", "samples", "others")
        print_json([dict(zip(words, astuple(m), strict=True)) for m in merged])
        return
    changed = [m for m in merged if m.is_change]
    click.echo(f"{len(changed)} of {len(merged)} runs of {source.name} added something to {opened.name}")
    if changed:
        rows = [(m.run_id, "new" if m.is_new else "had it", str(m.n_samples), str(m.n_others)) for m in changed]
        print_table(("run", "the store", "added samples", "other rows"), rows, right=(2, 3))


def _confirmed(question: str) -> bool:
    """Ask the user.

    Raises:
        InputError: standard input has no answer, as in a script.
    """
    try:
        return click.confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise InputError("there is no answer on standard input", where="runs rm", remedy="add --yes") from None


def _state(document: dict[str, Any]) -> str:
    if document["measured_by"]:
        return f"measured by {document['measured_by']}"
    if document["imported"]:
        return "imported"
    return "finished" if document["finished"] else "unfinished"


def _progress(document: dict[str, Any]) -> str:
    samples = document["samples"]
    return f"{samples['measured']} of {samples['planned'] if samples['planned'] is not None else '?'}"


def _print(document: dict[str, Any]) -> None:
    from cephfit.core.values.sample import IMPORTED, SIMULATED
    from cephfit.results.report import formatting

    click.echo(f"run {document['run']} of {document['sweep']}: {_state(document)}")
    if document["simulated"]:
        click.echo(SIMULATED)
    if document["imported"]:
        click.echo(IMPORTED)
        click.echo(f"imported {formatting.moment(document['begun_ns'])}")
    else:
        click.echo(
            f"begun {formatting.moment(document['begun_ns'])} on {document['target']}, seed {document['seed']}"
        )
    if document["cluster"]:
        click.echo(f"cluster: {document['cluster']}")
    for name, version in _flat(document["versions"]):
        if not name.endswith("warning"):
            click.echo(f"{name}: {version}")
    click.echo(f"samples measured: {_progress(document)} (one per fio run and client)")
    click.echo()
    rows = [
        (c["name"], *(str(c["samples"][state]) for state in _STATES), ", ".join(c["settings"]) or "-")
        for c in document["configurations"]
    ]
    print_table(("configuration", *_STATES, "settings"), rows, right=range(1, 1 + len(_STATES)))
    click.echo()
    saved = [f"{n} {kind}" for kind, n in document["saved"].items()]
    saved += [f"{n} runs of {workload}" for workload, n in document["workload_runs"].items()]
    click.echo(f"saved with it: {', '.join(saved) or 'nothing'}")


def _flat(facts: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for key, value in facts.items():
        lines += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", str(value))]
    return lines
