"""fio's JSON output of versions 2 and 3, of one machine or of client/server mode.

Version 2 has latencies in microseconds (``clat``) and counts ``io_bytes`` in KiB; version 3 has nanoseconds
(``clat_ns``) and bytes, and ``io_kbytes`` as well (fio's stat.c). Each job is brought into the form of version 3,
and its figures are then checked as those of our own runs (``measure/fio/fio_files.py``).

Jobs of one group ran at the same time (fio begins a group at ``stonewall`` and ``new_group``). If they did the
same kind of access, they are processes of one client, and their rates are summed.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cephfit.core.units import NS_PER_S
from cephfit.core.values.cells import Cell, Op, Pattern, SizeBin
from cephfit.core.values.measurement import DSYNC, FSYNC
from cephfit.core.values.sample import Metrics
from cephfit.measure.fio.fio_files import UnusableOutputError, error_of, metrics_of
from cephfit.measure.imported_outputs.output_reader import (
    SYNCHRONOUS_ENGINES,
    FileHints,
    ImportedResult,
    NotUnderstood,
    OutputContent,
    UnusableError,
    block_nbytes,
    gathered,
    patterns_of,
    summed,
)

_ALL_CLIENTS = "All clients"
"""Job that fio adds in client/server mode: the sum of all clients."""
_DEFAULT_ENGINE = "psync"
_VERSION = '"fio version"'
_NS_PER_US = 1000
_LATEST_SECONDS = 1 << 33
"""Later times, since the epoch, are damaged: this is the year 2242."""


class FioJsonReader:
    """Implements ``OutputReader``."""

    name = "fio-json"
    title = "fio's JSON"

    def sniff(self, text: str) -> bool:
        return (_VERSION in text and '"jobs"' in text) or ('"client_stats"' in text and _VERSION in text)

    def read(self, text: str, hints: FileHints) -> OutputContent:
        results: list[ImportedResult] = []
        lost: list[NotUnderstood] = []
        documents = list(_documents(text))
        for line, document in documents:
            at = f"line {line}, " if len(documents) > 1 else ""
            if isinstance(document, str):
                lost.append(NotUnderstood(f"line {line}", document))
                continue
            found = _of_document(document, at, hints)
            results += found.results
            lost += found.not_understood
        if not documents:
            lost.append(NotUnderstood("", "there is no JSON document of fio in it"))
        return OutputContent(tuple(results), tuple(lost))


_START = re.compile(r"^\s*\{", re.MULTILINE)


def _documents(text: str) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Yield (line, document of fio), with the reason instead of a document that cannot be read."""
    decoder = json.JSONDecoder()
    at = 0
    while (start := _START.search(text, at)) is not None:
        begin = start.end() - 1
        line = text.count("\n", 0, begin) + 1
        try:
            document, at = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            yield line, f"this JSON document is damaged or truncated: {error}"
            following = text.find("\n{", begin + 1)
            if following < 0:
                return
            at = following
            continue
        if "fio version" in document:
            yield line, document
        else:
            yield line, "this JSON document is not fio's"


@dataclass(frozen=True, slots=True)
class _Job:
    """One entry of a document, with everything that decides what it measured."""

    place: str
    name: str
    client: str
    group: str
    entry: Mapping[str, Any]
    options: Mapping[str, str]

    @property
    def kind(self) -> tuple[str, str]:
        """What distinguishes accesses of jobs that ran together."""
        return str(_first(self.options, "rw", "readwrite")), str(_first(self.options, "bs", "blocksize"))


def _of_document(document: Mapping[str, Any], at: str, hints: FileHints) -> OutputContent:
    listed = document.get("client_stats", document.get("jobs"))
    if not isinstance(listed, list):
        return OutputContent((), (NotUnderstood(at.rstrip(", "), "this document of fio has no list of jobs"),))
    together: dict[tuple[str, str], list[_Job]] = {}
    lost: list[NotUnderstood] = []
    shared = _options(document.get("global options"))
    for number, entry in enumerate(listed, start=1):
        name = str(entry.get("jobname", "")) if isinstance(entry, dict) else ""
        place = f"{at}job {number}{f' ({name})' if name else ''}"
        if not isinstance(entry, dict):
            lost.append(NotUnderstood(place, "this is not a job of fio"))
        elif name != _ALL_CLIENTS or "hostname" not in entry:
            options = {**shared, **_options(entry.get("job options"))}
            job = _Job(place, name, str(entry.get("hostname", "")), str(entry.get("groupid")), entry, options)
            together.setdefault((job.client, job.group), []).append(job)
    if not listed:
        lost.append(NotUnderstood(at.rstrip(", "), "this document of fio has no jobs: they failed to start"))
    finished_ns = _finished_ns(document)
    kinds = {key: len({job.kind for job in jobs}) for key, jobs in together.items()}
    for key, jobs in together.items():
        if kinds[key] > 1:
            names = ", ".join(job.name for job in jobs)
            reason = f"{names} ran at the same time and did different accesses, so there is no rate of one kind"
            lost += (NotUnderstood(job.place, reason) for job in jobs)
    found = gathered(
        (
            (jobs[0].place, partial(_of_group, jobs, hints, finished_ns))
            for key, jobs in together.items()
            if kinds[key] == 1
        ),
        stating=(UnusableError, UnusableOutputError),
    )
    return OutputContent(found.results, (*lost, *found.not_understood))


def _finished_ns(document: Mapping[str, Any]) -> int:
    """Return when fio wrote a document; 0 if it does not state that."""
    seconds = document.get("timestamp")
    return seconds * NS_PER_S if isinstance(seconds, int) and 0 < seconds < _LATEST_SECONDS else 0


def _options(stated: Any) -> dict[str, str]:
    """Return options as text; empty if they are not fio's."""
    return {str(key): str(value) for key, value in stated.items()} if isinstance(stated, dict) else {}


def _of_group(jobs: Sequence[_Job], hints: FileHints, finished_ns: int, place: str) -> Iterator[ImportedResult]:
    """Yield one result of jobs that ran together on one client; two if they mix reads and writes.

    Raises:
        UnusableError, UnusableOutputError: there are no usable figures.
    """
    first = jobs[0]
    options = first.options
    patterns = _patterns(first, hints)
    is_mixed = len(patterns) > 1
    threads = [_threads(job, jobs) for job in jobs]
    limits = [_limit(job.options) for job in jobs]
    for pattern in patterns:
        parts = [
            _of_job(job, pattern, hints, n, is_mixed=is_mixed, is_limited=limit is not None)
            for job, n, limit in zip(jobs, threads, limits, strict=True)
        ]
        sizes = {nbytes for nbytes, _, _ in parts}
        if len(sizes) > 1:
            raise UnusableError("the processes of one job had blocks of different sizes")
        nbytes = sizes.pop()
        yield ImportedResult(
            place=place,
            job=first.name,
            pattern=pattern,
            nbytes=nbytes,
            iodepth=sum(in_flight for _, in_flight, _ in parts),
            metrics=summed([metrics for _, _, metrics in parts]),
            client=first.client,
            read_pct=_read_pct(options) if is_mixed else None,
            rate_iops=_limit_together(limits, threads, nbytes),
            align_nbytes=_alignment(options, nbytes),
            sync=_sync(options) if pattern.op is Op.WRITE or is_mixed else "",
            finished_ns=finished_ns,
        )


def _patterns(job: _Job, hints: FileHints) -> tuple[Pattern, ...]:
    """Return the patterns that a job says it has, else those of the hints.

    Raises:
        UnusableError: neither states them, or fio does not report reads and writes separately.
    """
    if "mixed" in job.entry and "read" not in job.entry:
        raise UnusableError("fio reported reads and writes as one sum (unified_rw_reporting)")
    rw = _first(job.options, "rw", "readwrite")
    if rw is not None:
        return patterns_of(rw)
    if job.options:
        return (Pattern.READ,)  # fio's default
    if hints.pattern is not None:
        return (hints.pattern,)
    raise UnusableError(
        "this version of fio does not write the options of a job: add `pattern` to a mapping, or name the file or "
        "its folder after it"
    )


def _of_job(
    job: _Job, pattern: Pattern, hints: FileHints, threads: int, *, is_mixed: bool, is_limited: bool
) -> tuple[int, int, Metrics]:
    """Return block size, I/Os in flight, and metrics of one entry."""
    if error := error_of(job.entry):
        raise UnusableError(f"fio ended with error {error}")
    options = job.options
    if any(int(_digits(options.get(word)) or 0) for word in ("thinktime", "thinkcycles")):
        raise UnusableError("the job waited between its I/Os (thinktime), so it did not drive the storage")
    side = _in_version_3(job.entry.get(pattern.op.value), options, hints)
    if not side["io_bytes"] or not side["total_ios"]:
        raise UnusableError(f"no {pattern.op} completed")
    nbytes = _block(options, side, hints)
    depth = _depth(options, hints)
    if not _counts_bytes(side):
        side["io_bytes"] = _whole_blocks(side, nbytes)
    other = Op.WRITE if pattern.op is Op.READ else Op.READ
    entry = {**job.entry, pattern.op.value: side}
    entry[other.value] = job.entry.get(other.value) or {"io_bytes": 0}
    cell = Cell(SizeBin(str(nbytes), nbytes, None), pattern)
    metrics = metrics_of(
        entry,
        cell,
        iodepth=depth,
        run_seconds=0.0,
        n_threads=threads,
        mixed=is_mixed,
        limited=is_limited,
    )
    return nbytes, depth * threads, metrics


def _threads(job: _Job, together: Sequence[_Job]) -> int:
    """Return how many processes an entry is the sum of: with group_reporting, fewer entries than ``numjobs``."""
    entries = sum(other.name == job.name for other in together)
    return max(1, int(_digits(job.options.get("numjobs")) or 1) // entries)


def _in_version_3(side: Any, options: Mapping[str, str], hints: FileHints) -> dict[str, Any]:
    """Return the figures of one direction in the form of fio 3; those of version 2 have other units."""
    if not isinstance(side, dict):
        raise UnusableError("fio reports no figures of this direction")
    found = {"short_ios": 0, "drop_ios": 0, **side}
    if "total_ios" not in found and isinstance(found.get("io_bytes"), int):
        block = _first(options, "bs", "blocksize")
        nbytes = block_nbytes(block) if block is not None else hints.nbytes
        if not nbytes:
            raise UnusableError("this version of fio does not state the block size: add `size` to a mapping")
        found["total_ios"] = found["io_bytes"] * (1 if _counts_bytes(side) else 1024) // nbytes
    for key in ("io_bytes", "total_ios", "runtime"):
        value = found.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise UnusableError(f"fio's {key} is {value!r}")
    if not _counts_bytes(side):
        found["io_bytes"] = side["io_bytes"] * 1024
    clat = side.get("clat_ns")
    if clat is None and isinstance(side.get("clat"), dict):
        clat = {key: _in_ns(value) for key, value in side["clat"].items() if key in ("min", "max", "mean")}
        clat["percentile"] = {
            key: _in_ns(value) for key, value in (side["clat"].get("percentile") or {}).items() if _is_number(key)
        }
    # Without latencies (gtod_reduce, disable_clat) their mean follows from Little's law.
    found["clat_ns"] = _with_extremes(clat) if clat and clat.get("mean") else {"N": 0, "max": 0}
    return found


def _with_extremes(clat: Mapping[str, Any]) -> dict[str, Any]:
    """Return latencies with the least and the greatest, which documents that others shortened may lack."""
    known = [
        value
        for value in (clat["mean"], *(clat.get("percentile") or {}).values())
        if isinstance(value, int | float)
    ]
    return {"min": min(known, default=0), "max": max(known, default=0), **clat}


def _counts_bytes(side: Mapping[str, Any]) -> bool:
    """Return whether ``io_bytes`` are bytes, as in version 3; in version 2 they are KiB."""
    return not {"io_kbytes", "clat_ns", "lat_ns"}.isdisjoint(side)


def _in_ns(microseconds: Any) -> Any:
    return microseconds * _NS_PER_US if isinstance(microseconds, int | float) else microseconds


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _whole_blocks(side: Mapping[str, float], nbytes: int) -> float:
    """Return the bytes of fio 2, which are rounded down to KiB: the nearest whole number of blocks."""
    rounded = round(side["io_bytes"] / nbytes) * nbytes
    return rounded if abs(rounded - side["io_bytes"]) <= 1024 else side["io_bytes"]


def _block(options: Mapping[str, str], side: Mapping[str, Any], hints: FileHints) -> int:
    """Return the block size: that of the options, checked against the mean size of the I/Os.

    Raises:
        UnusableError: the options have several sizes, or the I/Os had another one.
    """
    block = _first(options, "bs", "blocksize")
    if "bssplit" in options or _first(options, "bsrange", "blocksize_range") is not None:
        raise UnusableError("the blocks have several sizes (bssplit or bsrange)")
    mean = side["io_bytes"] / side["total_ios"]
    if block is not None:
        nbytes = block_nbytes(block)
    elif options:
        nbytes = 4096  # fio's default
    else:
        nbytes = hints.nbytes or _nearest_size(mean, side["total_ios"])
    # Bytes are of completed I/Os, and the number is of issued ones; version 2 rounds bytes down to KiB.
    if abs(mean - nbytes) > nbytes * max(0.02, 300 / side["total_ios"]) + 1024 / side["total_ios"]:
        raise UnusableError(f"the mean size of its I/Os is {mean:.0f} bytes, and bs is {nbytes}")
    return nbytes


def _nearest_size(mean: float, n_ios: float) -> int:
    """Return the multiple of 512 bytes that I/Os of this mean size have."""
    return max(512, round(mean / 512) * 512)


def _depth(options: Mapping[str, str], hints: FileHints) -> int:
    engine = options.get("ioengine", _DEFAULT_ENGINE if options else "")
    if engine in SYNCHRONOUS_ENGINES:
        return 1
    return int(_digits(options.get("iodepth")) or hints.iodepth or 1)


def _read_pct(options: Mapping[str, str]) -> int:
    if "rwmixread" in options:
        return int(_digits(options["rwmixread"]) or 50)
    return 100 - int(_digits(options.get("rwmixwrite")) or 50)


def _limit(options: Mapping[str, str]) -> tuple[str, str] | None:
    keys = (key for key in ("rate_iops", "rate") if int(_digits(options.get(key)) or 0))
    return next(((key, options[key]) for key in keys), None)


def _limit_together(limits: Sequence[tuple[str, str] | None], threads: Sequence[int], nbytes: int) -> int | None:
    """Return the I/Os per second of jobs that ran together; None if one has no limit. fio limits each process."""
    known = [n * _per_second(limit, nbytes) for limit, n in zip(limits, threads, strict=True) if limit is not None]
    return sum(known) if len(known) == len(limits) else None


def _per_second(limit: tuple[str, str], nbytes: int) -> int:
    key, text = limit
    if key == "rate_iops":
        return int(_digits(text) or 0)
    return max(1, round(block_nbytes(next(filter(None, text.split(",")))) / nbytes))


def _alignment(options: Mapping[str, str], nbytes: int) -> int:
    block = _first(options, "ba", "blockalign")
    return 0 if block is None or block_nbytes(block) >= nbytes else block_nbytes(block)


def _sync(options: Mapping[str, str]) -> str:
    """Return how writes are made durable, as ``LoadedCell.sync``."""
    block = str(options.get("sync", "0")).lower()
    if block not in ("", "0", "none"):
        return DSYNC
    every = max(int(_digits(options.get(key)) or 0) for key in ("fsync", "fdatasync"))
    return "" if not every else FSYNC if every == 1 else f"every {every}"


_DIGITS = re.compile(r"\d+")


def _digits(text: object) -> str:
    """Return the first number in the text of an option; empty without any."""
    found = _DIGITS.search(str(text)) if text is not None else None
    return found[0] if found else ""


def _first(options: Mapping[str, str], *names: str) -> str | None:
    return next((str(options[name]) for name in names if name in options), None)
