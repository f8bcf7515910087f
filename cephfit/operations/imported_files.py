"""Read files of benchmark output, and name what they measured by names, folders and a mapping."""

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Pattern
from cephfit.core.values.sample import Metrics
from cephfit.measure.imported_outputs.fio_json import FioJsonReader
from cephfit.measure.imported_outputs.name_mapping import (
    NameMapping,
    PathNames,
    duplicate_of,
    fault_of,
    names_of_path,
    parsed,
)
from cephfit.measure.imported_outputs.output_reader import (
    FileHints,
    ImportedResult,
    NotUnderstood,
    OutputContent,
    OutputReader,
)
from cephfit.measure.imported_outputs.text_outputs import (
    FioTerseReader,
    FioTextReader,
    RadosBenchReader,
    RbdBenchReader,
)
from cephfit.results.tables.csv_text import COLUMNS, StatedRate, separator_of, stated_rates

_MOST_NBYTES = 256 << 20
"""Largest file that is read: outputs of benchmarks have some kilobytes, those with histograms some megabytes."""
_PREFILL = "prefill"
_CLIENT = "client"
"""Name of the client where nothing names one."""


@dataclass(frozen=True, slots=True)
class NamedResult:
    """A result with its names.

    Attributes:
        file: as given on the command line, or found below a folder.
        result: as read.
        configuration: name.
        client: name.
        repeat: None if nothing states it.
        finished_ns: wall clock, ns since the epoch: as stated, else the file's time.
    """

    file: str
    result: ImportedResult
    configuration: str
    client: str
    repeat: int | None
    finished_ns: int


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A file that was read.

    Attributes:
        name: as shown.
        digest: SHA-256 of its content, hex.
        format: title of its format; empty if unknown.
        text: its content; empty without results.
        results: what it measured.
        not_understood: parts without figures.
    """

    name: str
    digest: str
    format: str
    text: str
    results: tuple[NamedResult, ...]
    not_understood: tuple[NotUnderstood, ...]


class BaselineCsvReader:
    """Implements ``OutputReader`` for the CSV files that ``map --baselines`` takes.

    They state rates alone. A rate is kept as the I/Os of one second; the mean latency follows from Little's law.
    """

    name = "csv"
    title = "CSV of rates"

    def sniff(self, text: str) -> bool:
        header = text.lstrip("\ufeff\n\r ").partition("\n")[0].lower()
        columns = {column.strip() for column in header.split(separator_of(header))}
        return columns.issuperset(COLUMNS)

    def read(self, text: str, hints: FileHints) -> OutputContent:
        results: list[ImportedResult] = []
        try:
            rows = list(stated_rates(text.lstrip("\ufeff"), where="line"))
            together = Counter(map(_run_of, rows))
            for row in rows:
                # Where each client of a run has a row, the number of clients is not that of the row.
                n_clients = row.n_clients or 1 if together[_run_of(row)] == 1 else 1
                metrics = Metrics(
                    iops=row.iops,
                    nbytes_per_s=row.iops * row.under.nbytes,
                    n_ios=max(1, round(row.iops)),
                    runtime_ns=10**9,
                    latency_mean_ns=n_clients * row.under.iodepth * 1e9 / row.iops,
                )
                results.append(
                    ImportedResult(
                        f"line {row.line}",
                        "",
                        row.under.pattern,
                        row.under.nbytes,
                        row.under.iodepth,
                        metrics,
                        client=row.client,
                        align_nbytes=row.under.align_nbytes,
                        sync=row.under.sync,
                        configuration=row.configuration,
                        repeat=row.repeat,
                        rate_only=True,
                        n_clients=n_clients,
                    )
                )
        except InputError as error:
            reason = f"{error.what}; no row of this file is imported"
            return OutputContent((), (NotUnderstood(error.where.replace("line:", "line "), reason),))
        return OutputContent(tuple(results))


def _run_of(row: StatedRate) -> Hashable:
    return row.configuration, row.under, row.n_clients, row.repeat


def readers() -> Sequence[OutputReader]:
    """Return the readers of all formats that can be imported."""
    return (BaselineCsvReader(), *output_readers())


def reader_called(name: str) -> OutputReader:
    """Return the reader of a format by its name on the command line."""
    return next(reader for reader in readers() if reader.name == name)


def files_of(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files, and all files below the folders, in the order of their names.

    Raises:
        InputError: a path does not exist or cannot be read, or there are no files.
    """
    found = False
    for path in paths:
        if path.is_dir():
            below = sorted(p for p in path.rglob("*") if p.is_file() and not _is_hidden(p.relative_to(path)))
            found = found or bool(below)
            yield from below
        elif path.is_file():
            found = True
            yield path
        else:
            raise InputError(
                "there is no such file or folder",
                where=str(path),
                remedy="give outputs of benchmarks, or folders with them",
            )
    if not found:
        raise InputError(
            "there are no files",
            where=", ".join(map(str, paths)),
            remedy="give outputs of benchmarks, or folders with them",
        )


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def read_file(
    path: Path, mapping: NameMapping, reader: OutputReader | None, siblings: Sequence[str]
) -> ImportedFile:
    """Return what a file measured.

    Args:
        path: of the file.
        mapping: rules for names.
        reader: of the format; None to find it by the content.
        siblings: names of the files in the same folder.
    """
    name = path.as_posix()
    rule, values = mapping.of_file(name)
    if rule is not None and rule.skip:
        return _without_figures(name, "", f"left out by {rule.where}")
    if twin := duplicate_of(path, siblings):
        return _without_figures(name, "", f"the same run as {twin}")
    if _PREFILL in path.parts:
        return _without_figures(name, "", "cbt's prefill writes what is read later; it measures nothing")
    try:
        if path.stat().st_size > _MOST_NBYTES:
            return _without_figures(name, "", f"larger than {_MOST_NBYTES >> 20} MiB")
        content, modified_ns = path.read_bytes(), path.stat().st_mtime_ns
    except OSError as error:
        return _without_figures(name, "", f"cannot be read: {error.strerror}")
    digest = hashlib.sha256(content).hexdigest()
    if b"\0" in content[:8192]:
        return _without_figures(name, digest, "not a text file")
    text = content.decode("utf-8", errors="replace")
    chosen = reader or next((r for r in readers() if r.sniff(text)), None)
    if chosen is None:
        return _without_figures(name, digest, "not the output of a benchmark that is known")
    if wrong := _faults(values):
        return _without_figures(name, digest, f"{wrong}, by {rule.where if rule else ''}")
    names = names_of_path(path.absolute())
    read = chosen.read(text, _hints(values, names.hints))
    results, lost = [], list(read.not_understood)
    if not read.results and not lost:
        lost.append(NotUnderstood("", f"there are no figures of {chosen.title} in it"))
    for result in read.results:
        named = _named(name, result, mapping, values, names, modified_ns)
        if isinstance(named, NotUnderstood):
            lost.append(named)
        else:
            results.append(named)
    return ImportedFile(name, digest, chosen.title, text if results else "", tuple(results), tuple(lost))


def _without_figures(name: str, digest: str, reason: str) -> ImportedFile:
    return ImportedFile(name, digest, "", "", (), (NotUnderstood("", reason),))


def _faults(values: Mapping[str, str]) -> str:
    return "; ".join(wrong for name, text in values.items() if (wrong := fault_of(name, text)))


def _hints(values: Mapping[str, str], names: FileHints) -> FileHints:
    """Return what names say about a kind of access; a mapping comes first."""
    return FileHints(
        Pattern(values["pattern"]) if "pattern" in values else names.pattern,
        parsed("size", values["size"]) if "size" in values else names.nbytes,
        parsed("iodepth", values["iodepth"]) if "iodepth" in values else names.iodepth,
    )


def _named(
    name: str,
    result: ImportedResult,
    mapping: NameMapping,
    of_file: Mapping[str, str],
    names: PathNames,
    modified_ns: int,
) -> NamedResult | NotUnderstood:
    """Return a result with its names: those of the job's rule, of the file's, of the output, of the path."""
    rule, of_job = mapping.of_job(result.job)
    if rule is not None and rule.skip:
        return NotUnderstood(result.place, f"left out by {rule.where}")
    if rule is not None and (wrong := _faults(of_job)):
        return NotUnderstood(result.place, f"{wrong}, by {rule.where}")
    values = {**of_file, **of_job}
    changed = replace(
        result,
        align_nbytes=parsed("align", values["align"]) if "align" in values else result.align_nbytes,
        sync=values.get("sync", result.sync),
    )
    configuration = values.get("configuration") or result.configuration or names.configuration
    repeat = parsed("repeat", values["repeat"]) if "repeat" in values else result.repeat
    return NamedResult(
        name,
        changed,
        mapping.configurations.get(configuration, configuration),
        values.get("client") or names.client or result.client or _CLIENT,
        names.repeat if repeat is None else repeat,
        result.finished_ns or modified_ns,
    )


def output_readers() -> Sequence[OutputReader]:
    """Return one reader of each format, the most exact first.

    fio can write several formats into one file; the first that fits is read, and it has all jobs.
    """
    return (FioJsonReader(), FioTextReader(), FioTerseReader(), RadosBenchReader(), RbdBenchReader())
