"""Output of ``rados bench`` (text and JSON) and of ``rbd bench``.

``rados bench`` states its block size and its number of operations in any case; how many were in flight only where
it writes, or where the lines of each second are in the output (column ``Cur ops``). It never states whether reads
were sequential or random (Ceph's obj_bencher.cc): names or a mapping must. Its rate is the number of operations
over the time, because ``Average IOPS`` is truncated to a whole number.
"""

import re
from collections.abc import Iterator
from functools import partial

from cephfit.core.values.cells import Cell, Pattern, SizeBin
from cephfit.measure.ceph_bench import rados_bench, rbd_bench
from cephfit.measure.ceph_bench.bench_process import Ended
from cephfit.measure.imported_outputs.output_reader import (
    FileHints,
    ImportedResult,
    OutputContent,
    UnusableError,
    gathered,
)

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
    said = _MAINTAINING.search(text)
    if "total_time_run" in text:
        document = rados_bench.parse(text)
        seconds = document.get("datas") or []
        current = [int(row["cur_ops"]) for row in seconds if isinstance(row, dict) and "cur_ops" in row]
        return document, int(said["n"]) if said else max(current, default=0)
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
    return document, int(said["n"]) if said else max(current, default=0)


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
