"""Imported results: name everything in them, and store them as one run with samples, facts and a sweep file."""

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cephfit import __version__
from cephfit.core.errors import InputError
from cephfit.core.units import format_nbytes
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, LoadedCell, Op
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.sample import (
    IMPORTED_DOCUMENT,
    IMPORTED_FACT,
    IMPORTED_OUTPUT,
    INDEPENDENT_COUNT,
    OWN_LOAD,
    SUM_OF_CLIENTS,
    Run,
    Sample,
    SampleKey,
    State,
    new_run_id,
    not_counted,
)
from cephfit.measure.imported_outputs.name_mapping import NameMapping
from cephfit.measure.imported_outputs.output_reader import NotUnderstood, OutputReader
from cephfit.operations.imported_files import ImportedFile, NamedResult, files_of, read_file
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.file_settings import NAME

_BIN_SIZES = frozenset(size.benchmark_nbytes for size in SIZE_BINS)


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class ImportedShape:
    """The load of a result; ``nbytes`` is 0 for the size of a bin, so that one load has cells of all bins."""

    nbytes: int
    iodepth: int
    n_clients: int
    read_pct: int | None
    rate_iops: int | None
    align_nbytes: int
    sync: str

    def to_json(self) -> dict[str, Any]:
        """As the evidence of samples has it (``results/statistics/loads.py``)."""
        return {
            "iodepth": self.iodepth,
            "clients": self.n_clients,
            "read_pct": self.read_pct,
            "rate_iops": self.rate_iops,
            "rate_nbytes_per_s": None,
            "align_nbytes": self.align_nbytes,
            "sync": self.sync,
            "nbytes": self.nbytes,
        }

    def name(self, own: "ImportedShape") -> str:
        """Return the load's name: what distinguishes it from the own load."""
        words = [format_nbytes(self.nbytes)] if self.nbytes else []
        words += [f"depth{self.iodepth}"] if self.iodepth != own.iodepth else []
        words += [f"clients{self.n_clients}"] if self.n_clients != own.n_clients else []
        words += [f"reads{self.read_pct}"] if self.read_pct != own.read_pct else []
        words += [f"limit{self.rate_iops}"] if self.rate_iops != own.rate_iops else []
        words += [f"align{format_nbytes(self.align_nbytes)}"] if self.align_nbytes != own.align_nbytes else []
        words += [self.sync.replace(" ", "-") or "unsynced"] if self.sync != own.sync else []
        return "-".join(words)


@dataclass(frozen=True, slots=True)
class Understood:
    """What an import would store.

    Attributes:
        files: all files, also those without figures.
        rows: the results that count, with their repeats; the configurations have their final names.
        loads: name of the load of each row.
        shapes: of the loads.
        not_understood: (file, place, reason) of what gives no figures.
        default_was: name of the configuration that is the default A; empty if it was called so.
        notes: for the reader.
    """

    files: tuple[ImportedFile, ...]
    rows: tuple[NamedResult, ...]
    loads: tuple[str, ...]
    shapes: Mapping[str, ImportedShape]
    not_understood: tuple[tuple[str, str, str], ...]
    default_was: str
    notes: tuple[str, ...] = field(default=())

    @property
    def configurations(self) -> tuple[str, ...]:
        """Names, the default first."""
        names = dict.fromkeys(row.configuration for row in self.rows)
        return (DEFAULT_CONFIGURATION, *(name for name in names if name != DEFAULT_CONFIGURATION))

    def formats(self) -> dict[str, int]:
        """Return the number of files of each format."""
        return dict(Counter(file.format for file in self.files if file.results))


def understand(
    paths: Sequence[Path],
    mapping: NameMapping,
    *,
    reader: OutputReader | None = None,
    default: str | None = None,
    known: Mapping[str, str] | None = None,
) -> Understood:
    """Read files and folders, and name everything in them.

    Args:
        paths: files and folders.
        mapping: rules for names.
        reader: of the format; None to find it by the content of each file.
        default: name of the configuration that becomes the default A.
        known: by SHA-256, the run that has a file already; such files are skipped.

    Raises:
        InputError: a path does not exist, nothing in the files is understood, all of it is imported already, or
            there is no configuration of the name ``default``.
    """
    files: list[ImportedFile] = []
    seen: dict[str, str] = {}
    listed = list(files_of(paths))
    siblings: dict[Path, list[str]] = {}
    for path in listed:
        siblings.setdefault(path.parent, []).append(path.name)
    for path in listed:
        file = read_file(path, mapping, reader, siblings[path.parent])
        files.append(_once(file, seen, known or {}))
    lost = [(file.name, part.place, part.reason) for file in files for part in file.not_understood]
    named = [row for file in files for row in file.results]
    if not named:
        raise _nothing(files, lost, known or {})
    rows, default_was, notes = _with_default(named, default)
    rows, twins = _numbered(rows)
    shapes = _shapes_of(rows)
    own = _own_shape(rows, shapes)
    loads = tuple(shape.name(own) for shape in shapes)
    notes += [f"{place} of the mapping matches no file or job" for place in mapping.unused()]
    return Understood(
        tuple(files),
        tuple(rows),
        loads,
        dict(zip(loads, shapes, strict=True)),
        (*lost, *twins),
        default_was,
        tuple(notes),
    )


def _once(file: ImportedFile, seen: dict[str, str], known: Mapping[str, str]) -> ImportedFile:
    """Return a file without its results if they are known already."""
    if not file.results:
        return file
    reason = ""
    if file.digest in known:
        reason = f"imported already, in run {known[file.digest]}"
    elif file.digest in seen:
        reason = f"the same content as {seen[file.digest]}"
    seen.setdefault(file.digest, file.name)
    return file if not reason else replace(file, results=(), text="", not_understood=(NotUnderstood("", reason),))


def _nothing(
    files: Sequence[ImportedFile], lost: Sequence[tuple[str, str, str]], known: Mapping[str, str]
) -> InputError:
    """Return the error of an import without any result."""
    if runs := {known[file.digest] for file in files if file.digest in known}:
        return InputError(
            f"nothing in these {len(files)} files is new: imported already, in run {', '.join(sorted(runs))}",
            remedy="`cephfit runs rm` deletes a run, and its files can then be imported again",
        )
    shown = "\n  ".join(f"{file}{f', {place}' if place else ''}: {reason}" for file, place, reason in lost[:10])
    more = f"\n  and {len(lost) - 10} more" if len(lost) > 10 else ""
    return InputError(
        "nothing in these files is the result of a benchmark",
        where=f"{len(files)} file{'s' * (len(files) != 1)}",
        remedy=f"{shown}{more}",
    )


def _with_default(rows: Sequence[NamedResult], default: str | None) -> tuple[list[NamedResult], str, list[str]]:
    """Return rows whose names a store can have, with a default A, the former name of A, and notes.

    Raises:
        InputError: there is no such default, or two configurations would have one name.
    """
    names = dict.fromkeys(row.configuration for row in rows)
    if default is not None and default not in names:
        raise InputError(
            f"there is no configuration {default!r} in the files",
            where="--default",
            remedy=f"there are {', '.join(names)}",
        )
    notes: list[str] = []
    chosen = default or (DEFAULT_CONFIGURATION if DEFAULT_CONFIGURATION in names else min(names))
    if default is None and chosen != DEFAULT_CONFIGURATION and len(names) > 1:
        notes.append(f"{chosen} is taken as the default, because it is the first by name; --default names another")
    if chosen != DEFAULT_CONFIGURATION and DEFAULT_CONFIGURATION in names:
        raise InputError(
            f"a configuration is called {DEFAULT_CONFIGURATION}, which is the name of the default",
            where="--default",
            remedy=f"rename it in a mapping: `configurations: {{{DEFAULT_CONFIGURATION}: another-name}}`",
        )
    final: dict[str, str] = {}
    for name in names:
        new = DEFAULT_CONFIGURATION if name == chosen else _fitting(name)
        if new in final.values():
            other = next(old for old, its in final.items() if its == new)
            raise InputError(
                f"{other!r} and {name!r} would both be called {new}",
                where="configurations",
                remedy="rename one of them in a mapping",
            )
        final[name] = new
    former = "" if chosen == DEFAULT_CONFIGURATION else chosen
    return [replace(row, configuration=final[row.configuration]) for row in rows], former, notes


def _fitting(name: str) -> str:
    """Return a name of at most 40 letters, digits, ``.``, ``_`` and ``-``; longer ones end with a digest."""
    short = _NOT_IN_NAMES.sub("-", name).strip("-._") or "unnamed"
    if len(short) > 40:
        short = f"{short[:31]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    assert NAME.fullmatch(short), short
    return short


def _kind(row: NamedResult) -> tuple[Any, ...]:
    """Return what the clients and repeats of a row have in common."""
    r = row.result
    load = (r.iodepth, r.read_pct, r.rate_iops, r.align_nbytes, _sync(row))
    return (row.configuration, r.nbytes, r.pattern, *load)


def _sync(row: NamedResult) -> str:
    """Return how writes are made durable; reads have nothing to make durable, whatever a mapping states."""
    return row.result.sync if row.result.pattern.op is Op.WRITE else ""


def _numbered(rows: Sequence[NamedResult]) -> tuple[list[NamedResult], list[tuple[str, str, str]]]:
    """Return the rows with a repeat each, and those that state a repeat twice.

    Rows that do not state a repeat are numbered in the order of their times.
    """
    taken: dict[tuple[Any, ...], dict[int, NamedResult]] = {}
    twins: list[tuple[str, str, str]] = []
    order = sorted(rows, key=lambda row: (row.repeat is None, row.finished_ns, row.file))
    for row in order:
        used = taken.setdefault((*_kind(row), row.client), {})
        number = row.repeat if row.repeat is not None else next(n for n in range(len(used) + 1) if n not in used)
        if number in used:
            first = used[number]
            reason = (
                f"repeat {number} of {row.configuration} {_cell_text(row)} on {row.client} is in {first.file}, "
                f"{first.result.place} already: state `repeat` or `client` in a mapping"
            )
            twins.append((row.file, row.result.place, reason))
            continue
        used[number] = replace(row, repeat=number)
    return [row for used in taken.values() for row in used.values()], twins


def _cell_text(row: NamedResult) -> str:
    return f"{format_nbytes(row.result.nbytes)}-{row.result.pattern}"


def _shapes_of(rows: Sequence[NamedResult]) -> list[ImportedShape]:
    """Return the load of each row."""
    clients: dict[tuple[Any, ...], dict[str, int]] = {}
    for row in rows:
        clients.setdefault(_kind(row), {})[row.client] = row.result.n_clients
    return [
        ImportedShape(
            0 if row.result.nbytes in _BIN_SIZES else row.result.nbytes,
            row.result.iodepth,
            sum(clients[_kind(row)].values()),
            row.result.read_pct,
            row.result.rate_iops,
            row.result.align_nbytes,
            _sync(row),
        )
        for row in rows
    ]


def _own_shape(rows: Sequence[NamedResult], shapes: Sequence[ImportedShape]) -> ImportedShape:
    """Return the own load: plain, with most cells of the 20; among equals the shallowest.

    Without a rate of a bin's size, no load is the own one; the shape that most rows have names the others.
    """
    cells: dict[ImportedShape, set[tuple[str, Cell]]] = {}
    for row, shape in zip(rows, shapes, strict=True):
        cells.setdefault(shape, set()).add((row.configuration, loaded_cell(row).bin_cell))

    def order(shape: ImportedShape) -> tuple[Any, ...]:
        plain = shape.read_pct is None and shape.rate_iops is None and not shape.sync
        return not plain, -len(cells[shape]), shape.iodepth, shape.n_clients, shape.align_nbytes

    of_bins = [shape for shape in cells if not shape.nbytes]
    return min(of_bins, key=order) if of_bins else replace(min(cells, key=order), nbytes=0)


def loaded_cell(row: NamedResult) -> LoadedCell:
    return LoadedCell(row.result.nbytes, row.result.pattern)


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
