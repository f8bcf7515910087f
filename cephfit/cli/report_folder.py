"""`cephfit report --folder`: a page for every run, load and workload, an index, and tables of all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cephfit.cli.written_files import write_whole
from cephfit.errors import HostError, InputError

if TYPE_CHECKING:
    from cephfit.profile import Profile
    from cephfit.results.report_build import Predict
    from cephfit.results.report_index import IndexRow
    from cephfit.results.report_model import Findings
    from cephfit.results.store import Store

INDEX = "index.html"


def write_folder(
    store: Store,
    folder: Path,
    *,
    run_ids: Sequence[str],
    load: str | None,
    profiles: Sequence[Profile],
    predict: Predict,
) -> dict[str, Any]:
    """Write it all; what of it there was before is replaced, other files are left alone.

    Args:
        folder: made if it is not there.
        run_ids: all runs if empty.
        load: all loads of each run if None.
        profiles: workloads to predict for on every run; if empty, the one that each run was last mapped for.

    Returns:
        The index as JSON values.

    Raises:
        HostError: something cannot be written.
        InputError: there is nothing to report.
        StoreError: a run is not there.
    """
    from cephfit.results.render import to_html, to_index_html
    from cephfit.results.report_build import report_of
    from cephfit.results.report_index import all_cells_csv, all_predictions_csv, index_row, page_name

    now = time.time_ns()
    pages, lost = _findings(store, run_ids, load, profiles, predict)
    if not pages:
        why = "\n  ".join(lost) or "measure something first: `cephfit sweep run`"
        raise InputError("there is nothing to report", where=store.name, remedy=why)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise HostError(
            f"the folder cannot be created: {error.strerror}",
            where=str(folder),
            remedy="give another with --folder",
        ) from None
    rows: list[IndexRow] = []
    for findings in pages:
        report = report_of(findings, made_ns=now)
        row = index_row(findings, report, page_name(findings, [INDEX, *(row.page for row in rows)]))
        write_whole(folder / row.page, to_html(report), what="the report")
        rows.append(row)
    write_whole(folder / "cells.csv", all_cells_csv(pages), what="the table of cells")
    if any(findings.predictions for findings in pages):
        write_whole(folder / "workloads.csv", all_predictions_csv(pages), what="the table of predictions")
    else:
        (folder / "workloads.csv").unlink(missing_ok=True)
    index = to_index_html(rows, store=store.name, made_ns=now, lost=lost)
    write_whole(folder / INDEX, index, what="the index")
    return {
        "output": str(folder / INDEX),
        "pages": [
            {
                **{"run": row.run_id, "target": row.target, "load": row.load, "workload": row.workload},
                **{"output": str(folder / row.page), "answer": row.headline, "warnings": list(row.warnings)},
            }
            for row in rows
        ],
        "lost": lost,
    }


def _findings(
    store: Store, run_ids: Sequence[str], load: str | None, profiles: Sequence[Profile], predict: Predict
) -> tuple[list[Findings], list[str]]:
    """What can be reported, and why the rest cannot."""
    from cephfit.results.loads import names_of
    from cephfit.results.report_build import read_findings

    runs = [store.run(run_id) for run_id in dict.fromkeys(run_ids)] or store.runs()
    pages: list[Findings] = []
    lost: list[str] = []
    for run in runs:
        names = names_of(store.samples(run.run_id)) if load is None else (load,)
        if not names:
            lost.append(f"run {run.run_id} on {run.target} has no samples yet")
        for name in names:
            for profile in profiles or (None,):
                under = f" under load {name}" if name else ""
                try:
                    pages.append(read_findings(store, run.run_id, name, predict=predict, profile=profile))
                except InputError as error:
                    of = f" for {profile.name}" if profile else ""
                    lost.append(f"run {run.run_id} on {run.target}{under}{of}: {error.what}")
    return pages, lost
