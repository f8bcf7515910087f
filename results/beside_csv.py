"""Targets held against the first of them, cell by cell and for workloads, as CSV."""

from collections.abc import Iterator, Sequence

from cephfit.results.csv_origin import ORIGIN_COLUMNS, origin_of
from cephfit.results.sample_csv import csv_text, level_cells
from cephfit.results.side_by_side import Row, There
from cephfit.results.workloads_beside import Served
from cephfit.run import Run
from cephfit.sample import OWN_LOAD
from cephfit.units import MIB

_COLUMNS = (
    *("load", "configuration", "size", "pattern", "run", *ORIGIN_COLUMNS),
    *("repeats", "iops", "iops_low", "iops_high", "mib_per_s"),
    *("ratio", "ratio_low", "ratio_high", "differs", "missing", "workload", "rate_without"),
)


def rows_csv(
    rows: Sequence[Row], runs: Sequence[Run], *, load: str = OWN_LOAD, served: Sequence[Served] = ()
) -> str:
    """One line for each configuration, cell and target; what is not known is empty.

    Args:
        runs: of the targets, in their order.
        load: that the figures are of.
        served: workloads, which follow the cells: without a size and a pattern, accesses of the mix as I/Os, and
            ``rate_without`` names the cells that were not measured and that a rate leaves out.
    """
    lines = [line for row in rows for line in _of_cell(row, runs, load)]
    lines += [line for one in served for line in _of_workload(one, runs, load)]
    return csv_text(_COLUMNS, lines)


def _of_cell(row: Row, runs: Sequence[Run], load: str) -> Iterator[tuple[object, ...]]:
    size = row.cell.size
    for run, there in zip(runs, row.there, strict=True):
        place = (load, row.configuration, size.name, row.cell.pattern.value)
        yield (*place, *_figures(run, there, size.benchmark_nbytes), "", "")


def _of_workload(served: Served, runs: Sequence[Run], load: str) -> Iterator[tuple[object, ...]]:
    for run, there, rate in zip(runs, served.there, served.rates, strict=True):
        nbytes = rate.nbytes_per_access if rate else 0.0
        without = " ".join(map(str, rate.left_out)) if rate else ""
        yield (load, served.configuration, "", "", *_figures(run, there, nbytes), served.workload, without)


def _figures(run: Run, there: There, nbytes_per_access: float) -> Iterator[object]:
    yield from (run.run_id, *origin_of(run), there.n_repeats, *level_cells(there.rate, 1))
    yield there.rate.mean * nbytes_per_access / MIB if there.rate else ""
    yield from level_cells(there.ratio, 1)
    yield from ("" if there.differs is None else str(there.differs).lower(), there.missing)
