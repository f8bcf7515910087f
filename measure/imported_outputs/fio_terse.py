"""fio's terse output of version 3: one line of fields with semicolons for each job.

Fields as in fio's manual, section "Terse output". It does not state the options of a job: the pattern and the
depth must come from names or a mapping.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from cephfit.core.units import NS_PER_MS, format_nbytes
from cephfit.core.values.cells import Op
from cephfit.core.values.sample import Metrics
from cephfit.measure.imported_outputs.output_reader import (
    FileHints,
    ImportedResult,
    OutputContent,
    UnusableError,
    checked,
    gathered,
)


class FioTerseReader:
    """Implements ``OutputReader``."""

    name = "fio-terse"
    title = "fio's terse output"

    def sniff(self, text: str) -> bool:
        return _TERSE.search(text) is not None

    def read(self, text: str, hints: FileHints) -> OutputContent:
        lines = enumerate(text.splitlines(), start=1)
        return gathered(
            (f"line {number} ({line.split(';')[2]})", partial(_of_terse, line.split(";"), hints))
            for number, line in lines
            if _TERSE.match(line)
        )


_TERSE = re.compile(r"^3;fio-[^;]*;", re.MULTILINE)
_OF_TERSE: Mapping[Op, int] = {Op.READ: 5, Op.WRITE: 46}
"""Index of the first field of a direction: KiB, KiB/s, IOPS, run time in ms; then slat and clat in us."""
_TERSE_CLAT_MEAN = 10


def _of_terse(fields: Sequence[str], hints: FileHints, place: str) -> Iterator[ImportedResult]:
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
