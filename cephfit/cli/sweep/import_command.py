"""`cephfit import`: store what fio, rados bench, rbd bench, cbt or fio-plot measured elsewhere."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import store_option
from cephfit.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from cephfit.core.values.sample import Run
    from cephfit.operations.imported_results import Understood

_FORMATS = ("csv", "fio-json", "fio-text", "fio-terse", "rados-bench", "rbd-bench")
_SHOWN = 20
"""Rows of what was not understood in the terminal; --json has all."""


@click.command("import", short_help="Store results of benchmarks that were run without cephfit.")
@click.argument(
    "paths",
    metavar="FILES-OR-FOLDERS...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
)
@store_option
@click.option(
    "--mapping",
    "mapping_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="YAML with rules: which configuration, client and repeat a file or a job is.",
)
@click.option(
    "--default", metavar="NAME", help="The configuration that becomes the default A.  [default: A, else the first]"
)
@click.option("--name", default="imported", show_default=True, help="Name of the run, as `runs list` shows it.")
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), help="Format of all files.  [default: by their content]"
)
@click.option("--preview", is_flag=True, help="Show what would be stored, and store nothing.")
@json_option
def command(
    paths: tuple[Path, ...],
    store: str,
    mapping_file: Path | None,
    default: str | None,
    name: str,
    form: str | None,
    preview: bool,
    as_json: bool,
) -> None:
    """Store outputs of fio, rados bench or rbd bench as a run that `map`, `place` and `report` use.

    Files are recognised by their content: fio's JSON, normal and terse output, rados bench, rbd bench, and CSV
    files of rates. Folders of cbt and fio-plot are read as a whole. A folder's name is the configuration;
    --mapping states other names. Files that are in the store already are skipped.
    """
    from cephfit.core.errors import InputError, MissingStoreError
    from cephfit.measure.imported_outputs.name_mapping import NameMapping, read_mapping
    from cephfit.operations.imported_files import reader_called
    from cephfit.operations.imported_results import known_files, store_import, understand
    from cephfit.results.store.sample_store import Store
    from cephfit.sweep.declaration.file_settings import NAME

    if not NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be a name",
            where="--name",
            remedy="use at most 40 of a to z, A to Z, 0 to 9, -, _ and .",
        )
    mapping = NameMapping() if mapping_file is None else read_mapping(mapping_file)
    known: dict[str, str] = {}
    with suppress(MissingStoreError), Store.open(store, writing=not preview) as opened:
        known = known_files(opened)
    understood = understand(
        paths, mapping, reader=reader_called(form) if form else None, default=default, known=known
    )
    run = None
    if not preview:
        with Store.open(store, create=True, writing=True) as opened:
            run = store_import(opened, understood, name=name)
    if as_json:
        print_json(_document(understood, run))
    else:
        _print(understood, run, store)


def _document(understood: Understood, run: Run | None) -> dict[str, Any]:
    return {
        "run": None if run is None else run.run_id,
        "files": len(understood.files),
        "formats": understood.formats(),
        "default_was": understood.default_was,
        "notes": list(understood.notes),
        "samples": [
            {
                "file": row.file,
                "place": row.result.place,
                "job": row.result.job,
                "configuration": row.configuration,
                "nbytes": row.result.nbytes,
                "pattern": row.result.pattern.value,
                "load": load,
                "iodepth": row.result.iodepth,
                "client": row.client,
                "repeat": row.repeat,
                "iops": row.result.metrics.iops,
            }
            for row, load in zip(understood.rows, understood.loads, strict=True)
        ],
        "not_understood": [
            {"file": file, "place": place, "reason": reason} for file, place, reason in understood.not_understood
        ],
    }


def _print(understood: Understood, run: Run | None, store: str) -> None:
    n_files = sum(understood.formats().values())
    what = f"{_n(len(understood.rows), 'sample')} of {_n(len(understood.configurations), 'configuration')}"
    origin = ", ".join(f"{n} {title}" for title, n in understood.formats().items())
    if run is None:
        click.echo(f"preview: {what} from {_n(n_files, 'file')} ({origin}); nothing is stored")
    else:
        click.echo(f"run {run.run_id}: {what} from {_n(n_files, 'file')} ({origin})")
    if understood.default_was:
        click.echo(f"{understood.default_was} is called A here: the default, with which all others are compared")
    for note in understood.notes:
        click.echo(f"note: {note}")
    click.echo()
    headers = ("configuration", "size", "pattern", "iodepth", "clients", "repeats", "mean IOPS", "load")
    print_table(headers, _rows(understood), right=(1, 3, 4, 5, 6))
    if understood.not_understood:
        lost = understood.not_understood
        click.echo()
        click.echo(f"not imported: {_n(len(lost), 'part')} of {_n(len({f for f, _, _ in lost}), 'file')}")
        print_table(("file", "place", "reason"), [(f, place or "-", why) for f, place, why in lost[:_SHOWN]])
        if len(lost) > _SHOWN:
            reasons = Counter(reason for _, _, reason in lost[_SHOWN:])
            for reason, n in reasons.most_common():
                click.echo(f"{n} more: {reason}")
            click.echo("--json lists each of them")
    if run is not None:
        click.echo()
        click.echo(f"next: cephfit map PROFILE --baselines {store}")


def _rows(understood: Understood) -> list[tuple[str, ...]]:
    from cephfit.core.units import format_nbytes
    from cephfit.core.values.supply import rate_text

    order = {name: i for i, name in enumerate(understood.configurations)}
    cells: dict[tuple[Any, ...], dict[int, float]] = {}
    clients: dict[tuple[Any, ...], int] = {}
    for row, load in zip(understood.rows, understood.loads, strict=True):
        r = row.result
        key = (order[row.configuration], r.nbytes, r.pattern.value, r.iodepth, load)
        repeats = cells.setdefault(key, {})
        repeats[row.repeat or 0] = repeats.get(row.repeat or 0, 0.0) + r.metrics.iops
        clients[key] = understood.shapes[load].n_clients
    return [
        (
            understood.configurations[key[0]],
            format_nbytes(key[1]),
            key[2],
            str(key[3]),
            str(clients[key]),
            str(len(repeats)),
            rate_text(sum(repeats.values()) / len(repeats)),
            key[4] or "own",
        )
        for key, repeats in sorted(cells.items())
    ]


def _n(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
