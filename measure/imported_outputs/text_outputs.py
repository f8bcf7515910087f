"""Outputs as text: fio's normal and terse output, ``rados bench`` (also its JSON), and ``rbd bench``.

fio's normal output (versions 2 and 3) names the options of each job (``job: (g=0): rw=..., bs=..., ioengine=...,
iodepth=...``), then its figures (``job: (groupid=0, jobs=1): err= 0: ...``). The rate is rounded to three to four
digits there, so the number of I/Os (``issued``) over the run time is used where the output has both.

fio's terse output (version 3) has one line of fields with semicolons for each job. Fields as in fio's manual,
section "Terse output". It does not state the options of a job: the pattern and the depth must come from names or
a mapping. Nor does it state which lines of a group ran together, so there may be one of each.

``rados bench`` states its block size and its number of operations in any case; how many were in flight only where
it writes, or where the lines of each second are in the output (column ``Cur ops``). It never states whether reads
were sequential or random (Ceph's obj_bencher.cc): names or a mapping must. Its rate is the number of operations
over the time, because ``Average IOPS`` is truncated to a whole number.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from cephfit.core.units import NS_PER_MS, format_nbytes
from cephfit.core.values.cells import Cell, Op, Pattern, SizeBin
from cephfit.core.values.sample import Metrics
from cephfit.measure import rados_bench, rbd_bench
from cephfit.measure.bench_process import Ended
from cephfit.measure.imported_outputs.output_reader import (
    SYNCHRONOUS_ENGINES,
    FileHints,
    ImportedResult,
    NotUnderstood,
    OutputContent,
    UnusableError,
    block_nbytes,
    checked,
    gathered,
    patterns_of,
    summed,
)

_DECLARED = re.compile(
    r"^(?P<name>.*?): \(g=(?P<group>\d+)\): rw=(?P<rw>\w+), bs=(?P<bs>.*), ioengine=(?P<engine>\w+), "
    r"iodepth=(?P<depth>\d+)"
)
_FIGURES = re.compile(
    r"^(?P<name>.*?): \(groupid=(?P<group>\d+), jobs=(?P<jobs>\d{1,9})\): err=\s*(?P<error>-?\d{1,9})",
    re.MULTILINE,
)
_SIDE = re.compile(r"^\s*(?P<op>read|write)\s*: (?P<rest>.*(?:iops|IOPS)=.*)")
_IOPS = re.compile(r"(?:iops|IOPS)=\s*(?P<iops>[\d.]+[kKMG]?)")
_RUNTIME = re.compile(r"(?:/|runt=\s*)(?P<ms>\d+)msec")
_CLAT = re.compile(r"^\s*clat \((?P<unit>[num]?sec)\)\s*: .*avg=\s*(?P<mean>[\d.]+[kKM]?)")
_PERCENTILES = re.compile(r"^\s*clat percentiles \((?P<unit>[num]?sec)\)")
_PERCENTILE = re.compile(r"(?P<p>\d+\.\d+)th=\[\s*(?P<value>\d+)\]")
_ISSUED = re.compile(r"^\s*issued\s*(?:rwts|rwt|rwtd)?\s*: total=(?:r=)?(?P<read>\d+)[,/](?:w=)?(?P<write>\d+)")
_NS = {"nsec": 1.0, "usec": 1e3, "msec": 1e6, "sec": 1e9}
_THOUSANDS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}


def _number(text: str) -> float:
    return float(text[:-1]) * _THOUSANDS[text[-1]] if text[-1] in _THOUSANDS else float(text)


@dataclass(frozen=True, slots=True)
class _Section:
    """The lines with the figures of one job."""

    line: int
    name: str
    group: str
    n_jobs: int
    error: int
    lines: Sequence[str]


class FioTextReader:
    """Implements ``OutputReader``."""

    name = "fio-text"
    title = "fio's normal output"

    def sniff(self, text: str) -> bool:
        return _FIGURES.search(text) is not None

    def read(self, text: str, hints: FileHints) -> OutputContent:
        parts = []
        for begin, lines in _runs_of_fio(text.splitlines()):
            declared = _declared(lines)
            groups: dict[str, list[_Section]] = {}
            for section in _sections(lines, begin):
                groups.setdefault(section.group, []).append(section)
            for group, sections in groups.items():
                options = [match for (its, _), match in declared.items() if its == group]
                parts.append(
                    (f"line {sections[0].line} ({sections[0].name})", partial(_of_group, sections, options))
                )
        if not parts:
            return OutputContent((), (NotUnderstood("", "there are no figures of a job in it"),))
        return gathered(parts)


def _runs_of_fio(lines: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield (index of the first line, lines) of each run in a file; options come before the figures of a run."""
    begin, has_figures = 0, False
    for at, line in enumerate(map(str.strip, lines)):
        if has_figures and _DECLARED.match(line):
            yield begin, lines[begin:at]
            begin, has_figures = at, False
        has_figures = has_figures or _FIGURES.match(line) is not None
    yield begin, lines[begin:]


def _declared(lines: Sequence[str]) -> dict[tuple[str, str], re.Match[str]]:
    """Return the options of each job by (group, name)."""
    found = {}
    for line in lines:
        if (match := _DECLARED.match(line.strip())) is not None:
            found[match["group"], match["name"]] = match
    return found


def _sections(lines: Sequence[str], begin: int) -> Iterator[_Section]:
    """Yield the sections of a run; ``begin``: lines of the file before it."""
    starts = [(i, match) for i, line in enumerate(lines) if (match := _FIGURES.match(line.strip()))]
    for n, (i, match) in enumerate(starts):
        end = starts[n + 1][0] if n + 1 < len(starts) else len(lines)
        body = lines[i + 1 : end]
        stop = next((j for j, line in enumerate(body) if line.startswith("Run status group")), len(body))
        yield _Section(
            begin + i + 1, match["name"], match["group"], int(match["jobs"]), int(match["error"]), body[:stop]
        )


def _of_group(
    sections: Sequence[_Section], options: Sequence[re.Match[str]], place: str
) -> Iterator[ImportedResult]:
    """Yield the result of jobs that ran together; two if they mix reads and writes.

    Raises:
        UnusableError: there are no usable figures.
    """
    if not options:
        raise UnusableError("the output lacks the line with the job's options (rw=..., bs=..., iodepth=...)")
    if len({(match["rw"], match["bs"], match["engine"], match["depth"]) for match in options}) > 1:
        names = ", ".join(match["name"] for match in options)
        raise UnusableError(f"{names} ran at the same time and did different accesses, or at different depths")
    own = options[0]
    depth = 1 if own["engine"] in SYNCHRONOUS_ENGINES else int(own["depth"])
    patterns = patterns_of(own["rw"])
    nbytes = _block(own["bs"], patterns)
    for section in sections:
        if section.error:
            raise UnusableError(f"fio ended with error {abs(section.error)}")
    in_flight = depth * sum(section.n_jobs for section in sections)
    shares = {}
    found = {}
    for pattern in patterns:
        found[pattern] = summed([_figures(section, pattern.op, nbytes, depth) for section in sections])
        shares[pattern] = found[pattern].iops
    # The normal output does not state the mix, so its share of reads is the measured one.
    reads = next((shares[p] for p in patterns if p.op is Op.READ), 0.0)
    read_pct = round(100 * reads / sum(shares.values())) if len(patterns) > 1 else None
    for pattern in patterns:
        yield ImportedResult(
            place=place,
            job=sections[0].name,
            pattern=pattern,
            nbytes=nbytes,
            iodepth=in_flight,
            metrics=found[pattern],
            read_pct=read_pct,
        )


_VERSION_3_BLOCKS = re.compile(r"\((?P<op>[RWT])\) (?P<low>[\d.]+[KMG]?i?B)-(?P<high>[\d.]+[KMG]?i?B)")


def _block(text: str, patterns: Sequence[Pattern]) -> int:
    """Return the block size of ``4K-4K/4K-4K/4K-4K`` (fio 2) or ``(R) 4096B-4096B, (W) ...`` (fio 3).

    Raises:
        UnusableError: it is not one size.
    """
    wanted = {"R" if pattern.op is Op.READ else "W" for pattern in patterns}
    parts = [(m["op"], m["low"], m["high"]) for m in _VERSION_3_BLOCKS.finditer(text)]
    if not parts:
        ranges = (part.partition("-") for part in text.split("/"))
        parts = [(op, low, high) for op, (low, _, high) in zip("RWT", ranges, strict=False) if high]
    sizes = {size for op, low, high in parts if op in wanted for size in (low, high)}
    if not sizes:
        raise UnusableError(f"bs={text} is not a block size")
    return block_nbytes("/".join(sizes))


def _figures(section: _Section, op: Op, nbytes: int, depth: int) -> Metrics:
    """Return the figures of one direction.

    Raises:
        UnusableError: there are none.
    """
    at = next((i for i, line in enumerate(section.lines) if (m := _SIDE.match(line)) and m["op"] == op), None)
    if at is None:
        raise UnusableError(f"there are no figures of {op}s")
    side = section.lines[at]
    rate, runtime = _IOPS.search(side), _RUNTIME.search(side)
    if rate is None or runtime is None or not int(runtime["ms"]):
        raise UnusableError("this line has no rate and run time")
    until = next(
        (j for j, line in enumerate(section.lines[at + 1 :], at + 1) if _SIDE.match(line)), len(section.lines)
    )
    own = section.lines[at + 1 : until]
    seconds = int(runtime["ms"]) / 1000
    issued = next((m for line in section.lines if (m := _ISSUED.match(line))), None)
    iops = _number(rate["iops"])
    # The rounded rate decides between the number of I/Os after the ramp, and one that counts the ramp too.
    counted = int(issued[op.value]) / seconds if issued is not None else 0.0
    if abs(counted - iops) <= 0.01 * iops + 1:
        iops = counted or iops
    if iops <= 0:
        raise UnusableError(f"no {op} completed")
    mean = next((m for line in own if (m := _CLAT.match(line))), None)
    in_flight = depth * section.n_jobs
    mean_ns = _number(mean["mean"]) * _NS[mean["unit"]] if mean is not None else in_flight / iops * 1e9
    return checked(
        lambda: Metrics(
            iops=iops,
            nbytes_per_s=iops * nbytes,
            n_ios=round(iops * seconds),
            runtime_ns=int(runtime["ms"]) * NS_PER_MS,
            latency_mean_ns=mean_ns,
            latency_percentiles_ns=_percentiles(own),
        )
    )


def _percentiles(lines: Sequence[str]) -> dict[float, float]:
    at, unit = next(((i, m["unit"]) for i, line in enumerate(lines) if (m := _PERCENTILES.match(line))), (0, None))
    if unit is None:
        return {}
    rows = takewhile(lambda line: line.lstrip().startswith("|"), lines[at + 1 :])
    found = {float(m["p"]): int(m["value"]) * _NS[unit] for line in rows for m in _PERCENTILE.finditer(line)}
    return {p: ns for p, ns in found.items() if ns > 0}


class FioTerseReader:
    """Implements ``OutputReader``."""

    name = "fio-terse"
    title = "fio's terse output"

    def sniff(self, text: str) -> bool:
        return _TERSE.search(text) is not None

    def read(self, text: str, hints: FileHints) -> OutputContent:
        lines = [(n, line.split(";")) for n, line in enumerate(text.splitlines(), start=1) if _TERSE.match(line)]
        groups = Counter(tuple(fields[3:4]) for _, fields in lines)
        return gathered(
            (f"line {n} ({fields[2]})", partial(_of_terse, fields, hints, groups[tuple(fields[3:4])]))
            for n, fields in lines
        )


_TERSE = re.compile(r"^3;fio-[^;]*;", re.MULTILINE)
_OF_TERSE: Mapping[Op, int] = {Op.READ: 5, Op.WRITE: 46}
"""Index of the first field of a direction: KiB, KiB/s, IOPS, run time in ms; then slat and clat in us."""
_TERSE_CLAT_MEAN = 10


def _of_terse(fields: Sequence[str], hints: FileHints, n_in_group: int, place: str) -> Iterator[ImportedResult]:
    if n_in_group > 1:
        raise UnusableError(
            f"{n_in_group} lines have the group {fields[3]}: terse output does not state whether they ran "
            "together or one after the other. Use group_reporting, and a file for each run"
        )
    if int(fields[4]):
        raise UnusableError(f"fio ended with error {fields[4]}")
    if hints.pattern is None:
        raise UnusableError("terse output does not state the pattern: add `pattern` to a mapping")
    at = _OF_TERSE[hints.pattern.op]
    kib, iops, runtime_ms = float(fields[at]), float(fields[at + 2]), int(fields[at + 3])
    if not iops or not runtime_ms:
        raise UnusableError(f"no {hints.pattern.op} completed")
    if float(fields[_OF_TERSE[Op.WRITE if hints.pattern.op is Op.READ else Op.READ]]):
        raise UnusableError("this is a mix of reads and writes, whose share terse output does not state")
    nbytes = hints.nbytes or max(512, round(kib * 1024 / (iops * runtime_ms / 1000) / 512) * 512)
    n_ios = kib * 1024 / nbytes
    counted = n_ios / (runtime_ms / 1000)
    if abs(counted - iops) > 0.02 * iops + 1:
        raise UnusableError(
            f"{kib:.0f} KiB in blocks of {format_nbytes(nbytes)} are {counted:.4g} IOPS, not {iops:.4g}"
        )
    mean_us = float(fields[at + _TERSE_CLAT_MEAN])
    depth = hints.iodepth
    if not depth:
        raise UnusableError("terse output does not state the iodepth: add `iodepth` to a mapping")
    metrics = checked(
        lambda: Metrics(
            iops=counted,
            nbytes_per_s=counted * nbytes,
            n_ios=round(n_ios),
            runtime_ns=runtime_ms * NS_PER_MS,
            latency_mean_ns=mean_us * 1000 if mean_us else depth / counted * 1e9,
        )
    )
    yield ImportedResult(place, fields[2], hints.pattern, nbytes, depth, metrics)


_TOTAL = re.compile(r"^\s*Total time run:\s+(?P<seconds>[\d.]+)", re.MULTILINE)
_FIELDS = {
    "made": re.compile(r"^\s*Total (?P<word>writes|reads) made:\s+(?P<n>\d+)", re.MULTILINE),
    "size": re.compile(r"^\s*(?:Write|Read) size:\s+(?P<n>\d+)", re.MULTILINE),
    "latency": re.compile(r"^\s*Average Latency(?:\(s\))?:\s+(?P<n>[\d.e+-]+)", re.MULTILINE),
}
_MAINTAINING = re.compile(r"^\s*Maintaining (?P<n>\d+) concurrent writes", re.MULTILINE)
_EACH_SECOND = re.compile(r"^\s*\d+\s+(?P<now>\d+)\s+\d+\s+\d+\s+[\d.]+\s+[\d.]+\s+\S+\s+\S+\s*$", re.MULTILINE)


class RadosBenchReader:
    """Implements ``OutputReader``."""

    name = "rados-bench"
    title = "rados bench"

    def sniff(self, text: str) -> bool:
        if "total_time_run" in text:
            return True
        return _TOTAL.search(text) is not None and _FIELDS["made"].search(text) is not None

    def read(self, text: str, hints: FileHints) -> OutputContent:
        parts = ((f"line {line}", partial(_of_rados, part, hints)) for line, part in _runs(text))
        return gathered(parts, stating=(UnusableError, ValueError))


def _runs(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line of the totals, text) of each run in a file: up to the end of its totals."""
    if "total_time_run" in text:
        yield 1, text
        return
    begin = 0
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if _TOTAL.match(line):
            end = next((i for i in range(at, len(lines)) if lines[i].strip() and ":" not in lines[i]), len(lines))
            yield at + 1, "\n".join(lines[begin:end])
            begin = end


def _of_rados(text: str, hints: FileHints, place: str) -> Iterator[ImportedResult]:
    document, depth = _document(text)
    writes = "total_writes_made" in document
    pattern = Pattern.WRITE if writes else hints.pattern
    if pattern is None or (not writes and pattern not in (Pattern.READ, Pattern.RANDREAD)):
        raise UnusableError(
            "rados bench does not state whether its reads were sequential (seq) or random (rand): name the file "
            "or its folder seq or rand, or add `pattern` to a mapping"
        )
    nbytes = int(document["write_size" if writes else "read_size"])
    depth = depth or hints.iodepth
    if not depth:
        raise UnusableError(
            "the output lacks the lines of each second, so the number of operations in flight is unknown: add "
            "`iodepth` to a mapping"
        )
    cell = Cell(SizeBin(str(nbytes), nbytes, None), pattern)
    metrics = rados_bench.metrics_of(document, cell, iodepth=depth, seconds=0.0)
    yield ImportedResult(place, "", pattern, nbytes, depth, metrics)


def _document(text: str) -> tuple[dict[str, str], int]:
    """Return the figures by the names of the JSON output, and the operations in flight; 0 if unknown.

    Raises:
        UnusableError: a figure is missing.
        ValueError: the JSON is damaged.
    """
    maintaining = _MAINTAINING.search(text)
    if "total_time_run" in text:
        document = rados_bench.parse(text)
        seconds = document.get("datas") or []
        current = [int(row["cur_ops"]) for row in seconds if isinstance(row, dict) and "cur_ops" in row]
        return document, int(maintaining["n"]) if maintaining else max(current, default=0)
    total = _TOTAL.search(text)
    found = {key: expression.search(text) for key, expression in _FIELDS.items()}
    missing = [key for key, match in found.items() if match is None]
    made, size, latency = (found[key] for key in _FIELDS)
    if total is None or made is None or size is None or latency is None:
        raise UnusableError(f"the output lacks {', '.join(missing) or 'the time'}: the run did not end")
    word = made["word"]
    document = {
        f"total_{word}_made": made["n"],
        f"{word[:-1]}_size": size["n"],
        "total_time_run": total["seconds"],
        "average_latency": latency["n"],
    }
    current = [int(match["now"]) for match in _EACH_SECOND.finditer(text)]
    return document, int(maintaining["n"]) if maintaining else max(current, default=0)


_PATTERNS = {
    ("read", "random"): Pattern.RANDREAD,
    ("write", "random"): Pattern.RANDWRITE,
    ("read", "sequential"): Pattern.READ,
    ("write", "sequential"): Pattern.WRITE,
    ("read", "full sequential"): Pattern.READ,
    ("write", "full sequential"): Pattern.WRITE,
}
_HEADING = re.compile(
    r"^\s*bench\s+type (?P<type>\w+).* io_size (?P<size>\d+) io_threads (?P<threads>\d+) "
    r"bytes \d+ pattern (?P<pattern>[a-z ]+?)\s*$",
    re.MULTILINE,
)


class RbdBenchReader:
    """Implements ``OutputReader``."""

    name = "rbd-bench"
    title = "rbd bench"

    def sniff(self, text: str) -> bool:
        return _HEADING.search(text) is not None

    def read(self, text: str, hints: FileHints) -> OutputContent:
        headings = list(_HEADING.finditer(text))
        ends = [*(heading.start() for heading in headings[1:]), len(text)]
        parts = (
            (
                f"line {text.count(chr(10), 0, heading.start(1)) + 1}",
                partial(_of_rbd, heading, text[heading.start() : end]),
            )
            for heading, end in zip(headings, ends, strict=False)
        )
        return gathered(parts, stating=(UnusableError, ValueError))


def _of_rbd(heading: re.Match[str], text: str, place: str) -> Iterator[ImportedResult]:
    kind = (heading["type"], heading["pattern"].strip())
    if kind not in _PATTERNS:
        raise UnusableError(f"a run of type {kind[0]} mixes reads and writes and reports one rate for both")
    pattern, nbytes, depth = _PATTERNS[kind], int(heading["size"]), int(heading["threads"])
    lines = "\n".join(line.strip() for line in text.strip().splitlines())
    metrics = rbd_bench.metrics_of(
        Ended(lines, ""), Cell(SizeBin(str(nbytes), nbytes, None), pattern), iodepth=depth
    )
    yield ImportedResult(place, "", pattern, nbytes, depth, metrics)
