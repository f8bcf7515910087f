"""Store results that were read elsewhere as one run: its samples, its facts and a sweep file."""

import hashlib
import json
import time
from typing import Any

from cephfit import __version__
from cephfit.core.values.cells import CELLS
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.run import IMPORTED_DOCUMENT, IMPORTED_FACT, IMPORTED_OUTPUT, Run, new_run_id
from cephfit.core.values.sample import (
    INDEPENDENT_COUNT,
    OWN_LOAD,
    SUM_OF_CLIENTS,
    Sample,
    SampleKey,
    State,
    not_counted,
)
from cephfit.operations.imported_files import ImportedFile, NamedResult
from cephfit.operations.imported_results import ImportedShape, Understood, loaded_cell
from cephfit.results.store.sample_store import Store

IMPORTED_TARGET = "imported"


def known_files(store: Store) -> dict[str, str]:
    """Return the run of each file that a store has already, by SHA-256."""
    known: dict[str, str] = {}
    for run in store.runs():
        if run.is_imported and (document := store.document(run.run_id, IMPORTED_DOCUMENT)):
            known.update(dict.fromkeys(document["files"], run.run_id))
    return known


def store_import(store: Store, understood: Understood, *, name: str) -> Run:
    """Store everything that was understood as one run, in one transaction; return the run."""
    samples: dict[str, list[Sample]] = {}
    for row, load in zip(understood.rows, understood.loads, strict=True):
        samples.setdefault(row.file, []).append(_sample(row, load, understood.shapes[load]))
    used = [file for file in understood.files if file.name in samples]
    text = _sweep_text(understood, name)
    now_ns = time.time_ns()
    facts = {
        "cephfit": __version__,
        IMPORTED_FACT: {
            "files": len(used),
            "formats": ", ".join(f"{title} ({n})" for title, n in understood.formats().items()),
            "not understood": len(understood.not_understood),
        },
    }
    run = Run(
        run_id=new_run_id(name, now_ns),
        sweep_name=name,
        sweep_text=text,
        sweep_digest=hashlib.sha256("".join(sorted(file.digest for file in used)).encode()).hexdigest(),
        target=IMPORTED_TARGET,
        seed=0,
        created_ns=now_ns,
        facts=facts,
        finished=True,
    )
    document = {
        "files": {file.digest: file.name for file in used},
        "not_understood": [list(part) for part in understood.not_understood],
        "default_was": understood.default_was,
    }
    outputs = ((_kept(file), samples[file.name]) for file in used)
    store.add_imported(run, outputs, document)
    return run


def _kept(file: ImportedFile) -> str:
    return json.dumps({IMPORTED_OUTPUT: file.text, "file": file.name})


def _sample(row: NamedResult, load: str, shape: ImportedShape) -> Sample:
    result = row.result
    assert row.repeat is not None, "every row is numbered"
    evidence: dict[str, Any] = {
        "load": shape.to_json(),
        "imported": {"file": row.file, "place": result.place, "job": result.job},
        INDEPENDENT_COUNT: not_counted("imported"),
    }
    if result.rate_only:
        evidence["imported"]["rate_only"] = True
    if result.n_clients > 1:
        evidence[SUM_OF_CLIENTS] = result.n_clients
    key = SampleKey(row.configuration, loaded_cell(row).bin_cell, row.client, row.repeat, 0, load)
    started_ns = max(0, row.finished_ns - result.metrics.runtime_ns)
    return Sample(key, State.OK, result.metrics, started_ns, max(started_ns, row.finished_ns), "", evidence)


def _sweep_text(understood: Understood, name: str) -> str:
    """Return a sweep file that declares what was imported. Only its names, cells and repeats mean something."""
    own = [row for row, load in zip(understood.rows, understood.loads, strict=True) if load == OWN_LOAD]
    cells = {loaded_cell(row).bin_cell for row in own or understood.rows}
    shape = understood.shapes.get(OWN_LOAD) or next(iter(understood.shapes.values()))
    repeats = 1 + max(row.repeat or 0 for row in understood.rows)
    runtimes = sorted(row.result.metrics.runtime_ns for row in understood.rows)
    lines = [
        "# Written by `cephfit import`. The size of the volumes, the seed and the settings are unknown.",
        "schema_version: 1",
        f"name: {name}",
        f"description: imported from {sum(understood.formats().values())} files",
        "configurations:",
    ]
    for configuration in understood.configurations:
        was = understood.default_was if configuration == DEFAULT_CONFIGURATION else ""
        lines.append(
            f"  {json.dumps(configuration)}: {{why: {json.dumps(f'imported as {was}' if was else 'imported')}}}"
        )
    lines += [
        "measurement:",
        f"  cells: [{', '.join(str(cell) for cell in CELLS if cell in cells)}]",
        f"  clients: {shape.n_clients}",
        "  volume_size: 32M",
        f"  repeats: {repeats}",
        f"  run_seconds: {runtimes[len(runtimes) // 2] / 1e9:.3f}",
        "  seed: 0",
        f"  iodepth: {shape.iodepth}",
    ]
    return "\n".join(lines) + "\n"
