"""Where on a volume a run begins: luck with placement must show as spread between repeats."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.protocols import Client
from cephfit.core.units import MIB
from cephfit.core.values.cells import CELLS, Cell
from cephfit.core.values.measurement import Measurement
from cephfit.measure.engine import CellRun
from cephfit.measure.fio.fio_files import region_of, render_job
from cephfit.sweep.declaration.sweep_file import bundled_sweep, read_sweep
from cephfit.sweep.sweep_plan import io_seed

MEASUREMENT: Measurement = read_sweep(bundled_sweep("quick")).measurement


def run_of(cell: Cell, seed: int, client: Client, configuration: str = "A") -> CellRun:
    return CellRun(configuration, cell, 0, 0, MEASUREMENT, [client], {client.name: seed})


@given(st.sampled_from(CELLS), st.integers(1, 2**62), st.integers(1, 320), st.sampled_from([0, 64 * MIB]))
def test_a_region_is_within_the_volume_and_at_least_half_of_it(
    cell: Cell, seed: int, n_blocks: int, base: int
) -> None:
    nbytes = n_blocks * 32 * MIB
    client = Client("c0", {"filename": "/dev/null", "offset": str(base)}, nbytes)
    offset, size = region_of(run_of(cell, seed, client), client)
    assert offset >= base
    assert offset + size == base + nbytes
    assert size * 2 >= nbytes
    assert (offset - base) % cell.size.benchmark_nbytes == 0


@given(
    st.sampled_from([c for c in CELLS if not c.pattern.is_random]),
    st.integers(1, 2**62),
    st.integers(2, 320),
    st.sampled_from([512, 4096, 65536, MIB]),
)
def test_a_region_that_is_not_aligned_holds_whole_accesses_within_the_volume(
    cell: Cell, seed: int, n_blocks: int, align_nbytes: int
) -> None:
    nbytes, block = n_blocks * 32 * MIB, cell.size.benchmark_nbytes
    client = Client("c0", {"filename": "/dev/null"}, nbytes)
    run = run_of(cell, seed, client)
    run = replace(run, measurement=replace(MEASUREMENT, align_nbytes=align_nbytes))
    offset, size = region_of(run, client)
    if align_nbytes >= block:
        assert (offset, size) == region_of(run_of(cell, seed, client), client)
        return
    assert offset % block == align_nbytes
    assert size % block == 0
    assert size >= block
    assert offset + size <= nbytes
    assert size >= nbytes // 2 - block


def test_sequential_repeats_begin_at_different_objects_and_configurations_of_a_round_at_the_same() -> None:
    client = Client("c0", {"filename": "/dev/null"}, 512 * MIB)
    cell = Cell.parse("4K-read")
    starts = {region_of(run_of(cell, io_seed(7, cell, repeat, "c0"), client), client) for repeat in range(8)}
    assert len(starts) > 4
    a, b = (run_of(cell, io_seed(7, cell, 0, "c0"), client, name) for name in ("A", "B"))
    assert region_of(a, client) == region_of(b, client)


def test_random_runs_use_the_whole_volume() -> None:
    client = Client("c0", {"filename": "/dev/null"}, 512 * MIB)
    assert region_of(run_of(Cell.parse("4K-randread"), 5, client), client) == (0, 512 * MIB)


def test_the_job_says_the_region_once() -> None:
    """A client's own offset is part of the region; twice in a section, fio would take the last."""
    client = Client("c0", {"filename": "/dev/null", "offset": str(64 * MIB)}, 512 * MIB)
    run = run_of(Cell.parse("4K-read"), 3, client)
    lines = [line for line in render_job(run).splitlines() if line.startswith("offset=")]
    assert lines == [f"offset={region_of(run, client)[0]}"]
