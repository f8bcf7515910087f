"""All formats of benchmark output, and which of them a file has."""

from collections.abc import Sequence

from cephfit.measure.imported_outputs.ceph_bench_output import RadosBenchReader, RbdBenchReader
from cephfit.measure.imported_outputs.fio_json import FioJsonReader
from cephfit.measure.imported_outputs.fio_terse import FioTerseReader
from cephfit.measure.imported_outputs.fio_text import FioTextReader
from cephfit.measure.imported_outputs.output_reader import OutputReader


def output_readers() -> Sequence[OutputReader]:
    """Return one reader of each format, the most exact first.

    fio can write several formats into one file; the first that fits is read, and it has all jobs.
    """
    return (FioJsonReader(), FioTextReader(), FioTerseReader(), RadosBenchReader(), RbdBenchReader())


def reader_of(text: str) -> OutputReader | None:
    """Return the reader for the content of a file; None if it has no known format."""
    return next((reader for reader in output_readers() if reader.sniff(text)), None)
