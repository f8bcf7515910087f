"""Loads: their keys in sweep files, and that the real fio keeps depth, mix and rate."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from cephfit.cli.sweep.sweep_text import plan_document, print_plan
from cephfit.core.errors import InputError
from cephfit.core.protocols import Client, NullProgress
from cephfit.core.units import KIB, MIB
from cephfit.core.values.cells import Cell
from cephfit.core.values.measurement import ASSUMED_TIMES, Load
from cephfit.core.values.sample import State
from cephfit.measure.engine import CellRun, disagreement
from cephfit.measure.fio.fio_files import render_job
from cephfit.measure.fio.fio_local import FioEngine
from cephfit.results.statistics.loads import shapes_of
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.run_progress import RunProgress
from cephfit.sweep.execution.runner import run_sweep
from cephfit.sweep.sweep_plan import Sweep, expected_seconds, plan_of
from cephfit.targets.simulated import SimulatedTarget

LOADS = """\
  loads:
    deep: {iodepth: 16}
    many: {clients: 8, sizes: [4K]}
    mixed: {read_pct: 70}
    slow: {rate_iops: 20, patterns: [randwrite]}
"""


def loaded(text: str, loads: str = LOADS) -> Sweep:
    return parse_sweep(text + loads, file="small.yaml")


def test_loads_differ_from_the_measurement_only_in_their_keys(small_text: str) -> None:
    m = loaded(small_text).measurement
    assert m.load_names == ("", "deep", "many", "mixed", "slow")
    assert m.loads[0] == Load("deep", iodepth=16)
    assert m.under("").shape() == {
        "iodepth": 4,
        "clients": 2,
        "read_pct": None,
        "rate_iops": None,
        "rate_nbytes_per_s": None,
    }
    assert (m.under("many").n_clients, m.under("many").iodepth) == (8, 4)
    assert [str(c) for c in m.under("many").cells] == ["4K-read", "4K-randwrite"]
    assert [str(c) for c in m.under("slow").cells] == ["4K-randwrite", "1M-randwrite"]
    assert m.most_clients == 8


@pytest.mark.parametrize(
    ("loads", "message"),
    [
        ("  loads: {d: {depth: 3}}\n", "unknown word 'depth'"),
        ("  loads: {d: {iodepth: 4}}\n", "load d is the same as the measurement itself"),
        ("  loads: {d: {iodepth: 9}, e: {iodepth: 9}}\n", "load e is the same as d"),
        ("  loads: {d: {sizes: [4K]}}\n", "add one of iodepth"),
        ("  loads: {d: {iodepth: 2, sizes: [32K]}}\n", "'32K' is not a size of this measurement"),
        ("  loads: {d: {read_pct: 100}}\n", "1 to 99 per cent of reads"),
        ("  loads: {d: {rate: 1M, rate_iops: 5}}\n", "keep one of the two"),
        ("  loads: {'a b': {iodepth: 2}}\n", "cannot be a load's name"),
        ("  loads: {d: {clients: 5000}}\n", "clients must be at most 1024, not 5000"),
        ("  ioengine: psync\n  loads: {d: {iodepth: 2}}\n", "is not possible"),
        ("  engine: fios\n", "'fios' is not a measurement.engine"),
        ("  loads: {d: {align: 3K}}\n", "cannot be aligned to 3K"),
        ("  loads: {d: {align: 256}}\n", "a power of two from 512 on"),
        ("  loads: {d: {align: 1M}}\n", "load d changes nothing in any cell"),
        ("  loads: {d: {align: own}}\n", "load d is the same as the measurement itself"),
        ("  loads: {d: {align: 4K}, e: {align: 4096}}\n", "load e is the same as d"),
        ("  loads: {d: {sync: always}}\n", "'always' is not a way to make writes durable"),
        ("  loads: {d: {sync: every 0}}\n", "every 8 (a flush after 8 writes)"),
        ("  loads: {d: {sync: fsync}, e: {sync: every 1}}\n", "load e is the same as d"),
        ("  loads: {d: {sync: fsync, patterns: [read, randwrite]}}\n", "name write and randwrite only"),
        ("  loads: {d: {sync: fsync, cells: [4K-read]}}\n", "cells that only read"),
        ("  loads: {d: {iodepth: 2, cells: [4K-write]}}\n", "'4K-write' is not a cell of this measurement"),
        ("  loads: {d: {iodepth: 2, cells: [4K-read], sizes: [4K]}}\n", "keep either cells"),
        ("  cells: [4K-read]\n", "keep either cells"),
        ("  ioengine: rbd\n  loads: {d: {sync: dsync}}\n", "write sync: fsync"),
        ("  engine: rbd-bench\n  loads: {d: {align: 4K}}\n", "rbd-bench does not support align"),
        ("  engine: rados-bench\n  sync: fsync\n", "rados-bench does not support sync"),
    ],
)
def test_an_invalid_load_is_refused_with_its_line(small_text: str, loads: str, message: str) -> None:
    text = small_text.replace("  iodepth: 4\n", "") if "psync" in loads else small_text
    text = text.replace("  ramp_seconds: 0.2\n", "") if "bench" in loads else text
    with pytest.raises(InputError) as caught:
        loaded(text, loads)
    assert message in str(caught.value)
    assert "small.yaml:" in str(caught.value)


def test_alignment_and_sync_are_read_and_a_load_measures_only_the_cells_that_it_changes(small_text: str) -> None:
    """The measurement has 4K and 1M, read and randwrite."""
    loads = """\
  loads:
    unaligned: {align: 4K}
    commits: {sync: every 8}
    both: {sync: dsync, align: 8K, sizes: [1M]}
    mixed: {sync: fsync, read_pct: 50, sizes: [4K]}
    deep: {iodepth: 16, align: 4K}
"""
    m = loaded(small_text, loads).measurement
    assert {name: [str(c) for c in m.under(name).cells] for name in m.load_names} == {
        "": ["4K-read", "4K-randwrite", "1M-read", "1M-randwrite"],
        "unaligned": ["1M-read", "1M-randwrite"],
        "commits": ["4K-randwrite", "1M-randwrite"],
        "both": ["1M-randwrite"],
        "mixed": ["4K-read", "4K-randwrite"],
        "deep": ["4K-read", "4K-randwrite", "1M-read", "1M-randwrite"],
    }
    assert {name: m.under(name).shape().get("align_nbytes") for name in m.load_names} == {
        "": None,
        "unaligned": 4 * KIB,
        "commits": None,
        "both": 8 * KIB,
        "mixed": None,
        "deep": 4 * KIB,
    }
    assert [m.under(name).flush_interval for name in m.load_names] == [0, 0, 8, 0, 1, 0]
    assert (
        str(m.under("both").run_as(Cell.parse("1M-randwrite"))) == "1M-randwrite (depth 4, aligned to 8K, dsync)"
    )


def test_cells_can_be_named_one_by_one(small_text: str) -> None:
    lines = [line for line in small_text.splitlines(True) if not line.strip().startswith(("sizes", "patterns"))]
    text = "".join(lines) + "  cells: [1M-read, 4K-randwrite]\n  loads: {deep: {iodepth: 9, cells: [1M-read]}}\n"
    m = parse_sweep(text, file="small.yaml").measurement
    assert [str(c) for c in m.cells] == ["4K-randwrite", "1M-read"], "in the order of the 20 cells"
    assert [str(c) for c in m.under("deep").cells] == ["1M-read"]


def test_a_load_may_take_back_alignment_and_sync_of_the_measurement(small_text: str) -> None:
    text = "  align: 4K\n  sync: fsync\n  loads: {plain: {align: own, sync: none}}\n"
    sweep = loaded(small_text, text)
    assert (sweep.measurement.align_nbytes, sweep.measurement.sync) == (4 * KIB, "fsync")
    plain = sweep.measurement.under("plain")
    assert (plain.align_nbytes, plain.sync) == (0, "")
    # 4K-read is neither realigned nor flushed, so it would be measured twice.
    assert [str(c) for c in plain.cells] == ["4K-randwrite", "1M-read", "1M-randwrite"]


def test_a_volume_needs_two_places_for_a_large_access_that_is_not_aligned(small_text: str) -> None:
    tight = small_text.replace("[4K, 1M]", "[4K, 32M]").replace("volume_size: 4M", "volume_size: 32M")
    assert tight.count("32M") == 2
    loaded(tight, "")
    with pytest.raises(InputError, match="make it at least 64M"):
        loaded(tight, "  loads: {d: {align: 4K}}\n")


def test_the_plan_states_alignment_sync_and_the_cells(
    small_text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = loaded(small_text, "  align: 8K\n  loads: {commits: {sync: every 8, align: own}}\n")
    document = plan_document(sweep, ASSUMED_TIMES, unsupported=None, without_effect={})
    assert document["measurement"]["align_nbytes"] == 8 * KIB
    assert document["measurement"]["loads"][0]["sync"] == "every 8"
    print_plan(document | {"stopping": None})
    shown = capsys.readouterr().out
    assert "accesses: aligned to 8K\n" in shown
    assert (
        "also under load commits: aligned to their own size, writes: a flush after 8 writes, only 4K-randwrite, "
        "1M-randwrite\n"
    ) in shown


def test_samples_and_titles_of_loads_state_alignment_and_sync(small_text: str, store: Store) -> None:
    sweep = loaded(small_text, "  loads: {commits: {sync: fsync, align: 4K}}\n")
    run = run_sweep(sweep, SimulatedTarget(), store, NullProgress(), resume=None)
    samples = store.samples(run.run_id)
    assert {s.evidence["load"].get("sync") for s in samples if s.key.load == "commits"} == {"fsync"}
    assert all("sync" not in s.evidence["load"] for s in samples if not s.key.load)
    assert {name: shape.rest for name, shape in shapes_of(samples).items()} == {
        "": "",
        "commits": "aligned to 4K, a flush after each write",
    }


def test_a_sweep_without_loads_keeps_its_digest_and_one_with_them_has_another(small_text: str) -> None:
    plain = parse_sweep(small_text, file="small.yaml")
    assert plain.digest == "33e7518ce54df8955c04222aead3b9dc435f1dcb6486c264125e01bf23ea7a84"
    assert loaded(small_text).digest != plain.digest
    assert loaded(small_text).digest != loaded(small_text, LOADS.replace("16", "32")).digest


def test_the_plan_measures_every_load_and_applies_a_configuration_once_for_all(small_text: str) -> None:
    sweep = loaded(small_text)
    plan = plan_of(sweep)
    runs = [(s.repeat, s.configuration, s.load, c) for s in plan.steps for c in s.cells]
    per_round = 4 + 4 + 2 + 4 + 2  # cells of each load
    assert len(runs) == len(set(runs)) == plan.n_runs == 2 * 3 * per_round
    places = [(s.repeat, s.configuration) for s in plan.steps]
    changes = 1 + sum(a != b for a, b in pairwise(places))
    assert changes == len(set(places)) == 6, "the loads of a configuration follow each other"
    # 6 applications, runs of (0.2 + 1 + 1) s, and 8 volumes of 4M for each of 3 configurations at 100 MiB/s
    assert expected_seconds(sweep, plan, ASSUMED_TIMES) == pytest.approx(6 * 12 + 96 * 2.2 + 3 * 8 * 4 / 100)


def test_every_load_is_measured_and_an_interrupted_run_continues(small_text: str, store: Store) -> None:
    sweep = loaded(small_text)
    target = SimulatedTarget()
    run = run_sweep(sweep, target, store, NullProgress(), resume=None)
    samples = store.samples(run.run_id)
    assert all(s.state is State.OK for s in samples)
    clients = {
        load: {s.key.client for s in samples if s.key.load == load} for load in sweep.measurement.load_names
    }
    assert {load: len(names) for load, names in clients.items()} == {
        "": 2,
        "deep": 2,
        "many": 8,
        "mixed": 2,
        "slow": 2,
    }
    assert {s.evidence["load"]["iodepth"] for s in samples if s.key.load == "deep"} == {16}
    assert len(store.applied(run.run_id)) == 6
    assert sum(s.left for s in RunProgress(sweep, samples).all()) == 0
    # Samples from before an interruption are not measured again; all others equal those of an uninterrupted run.
    half = [s for s in samples if s.key.repeat == 0 and s.key.load in ("", "many")]
    begun = replace(run, run_id="half", finished=False)
    store.add_run(begun)
    for sample in half:
        store.add_samples("half", [sample], fio_json=None)
    run_sweep(sweep, target, store, NullProgress(), resume=begun)
    again = {s.key: s.metrics for s in store.samples("half")}
    assert again == {s.key: s.metrics for s in samples}


def test_a_limit_is_kept_by_the_simulation_too(small_text: str, store: Store) -> None:
    run = run_sweep(loaded(small_text), SimulatedTarget(), store, NullProgress(), resume=None)
    slow = [s.metrics.iops for s in store.samples(run.run_id) if s.key.load == "slow" and s.metrics is not None]
    assert max(slow) == pytest.approx(20, rel=0.1)


def on_a_loop_device(sweep: Sweep, device: Path, cell: str, load: Load, **changes: object) -> CellRun:
    m = replace(sweep.measurement, run_seconds=1.0, loads=(load,), **changes)  # type: ignore[arg-type]
    client = Client("c0", {"filename": str(device)}, 16 * MIB, device)
    return CellRun("A", Cell.parse(cell), 0, 0, m.under(load.name), [client], {"c0": 5}, load.name)


@pytest.mark.fio
@pytest.mark.root
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
@pytest.mark.parametrize("cell", ["4K-randread", "4K-randwrite", "32K-write"])
def test_a_mix_has_its_requested_share_by_the_kernels_count(
    small_sweep: Sweep, loop_device: Callable[[int], Path], cell: str
) -> None:
    run = on_a_loop_device(small_sweep, loop_device(16 * MIB), cell, Load("mixed", read_pct=70))
    outcome = FioEngine().run(run)
    given = outcome.clients["c0"]
    assert given.metrics is not None, given.failure
    assert given.count is not None
    assert disagreement(given.metrics, given.count) == ""
    other = given.evidence["other_direction"]
    assert other["direction"] == ("read" if "write" in cell else "write")
    assert other["read_pct_measured"] == pytest.approx(70, abs=8)
    assert other["latency_mean_ns"] > 0
    job = json.loads(str(outcome.fio_json))["jobs"][0]
    own = job["write" if "write" in cell else "read"]
    assert given.metrics.nbytes_per_s * given.metrics.runtime_ns / 1e9 == pytest.approx(own["io_bytes"])


@pytest.mark.fio
@pytest.mark.root
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
@pytest.mark.parametrize(
    ("cell", "load", "iops"),
    [
        ("4K-randread", Load("slow", rate_iops=200), 200),
        ("4K-write", Load("slow", rate_nbytes_per_s=MIB), 256),
        ("4K-randwrite", Load("mix", rate_iops=400, read_pct=75), 100),
        ("1M-read", Load("slow", rate_iops=8), 8),
    ],
)
def test_a_rate_limit_holds_by_the_kernels_count(
    small_sweep: Sweep, loop_device: Callable[[int], Path], cell: str, load: Load, iops: float
) -> None:
    run = on_a_loop_device(small_sweep, loop_device(16 * MIB), cell, load, ramp_seconds=0.5, iodepth=1)
    given = FioEngine().run(run).clients["c0"]
    assert given.metrics is not None, given.failure
    assert given.count is not None
    assert disagreement(given.metrics, given.count) == ""
    # fio catches up after a moment without CPU time; without a limit the rate would be hundreds.
    assert given.metrics.iops == pytest.approx(iops, rel=0.15, abs=4)


def offsets_of(log: Path) -> list[int]:
    """Offsets in fio's log of its accesses, in their order."""
    lines = [line.split() for line in log.read_text().splitlines()]
    return [int(words[-2]) for words in lines if {"read", "write"} & set(words)]


@pytest.mark.fio
@pytest.mark.root
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
@pytest.mark.parametrize("cell", ["128K-randwrite", "128K-randread", "128K-write", "1M-read", "4K-randwrite"])
def test_accesses_start_where_the_load_says_and_stay_within_the_volume(
    small_sweep: Sweep, loop_device: Callable[[int], Path], tmp_path: Path, cell: str
) -> None:
    """Beyond the end of the device, fio would fail; the region before the end is checked with an offset."""
    run = on_a_loop_device(small_sweep, loop_device(16 * MIB), cell, Load("u", align_nbytes=4 * KIB), iodepth=1)
    log = tmp_path / "accesses"
    (client,) = run.clients
    options = {**client.fio_options, "write_iolog": str(log), "offset": str(4 * MIB)}
    run = replace(run, clients=[replace(client, fio_options=options, nbytes=9 * MIB)])
    given = FioEngine().run(run).clients["c0"]
    assert given.metrics is not None, given.failure
    assert given.count is not None
    assert disagreement(given.metrics, given.count) == ""
    block, offsets = run.cell.size.benchmark_nbytes, offsets_of(log)
    assert len(offsets) > 20
    assert all(offset % (4 * KIB) == 0 for offset in offsets)
    assert min(offsets) >= 4 * MIB
    assert max(offsets) + block <= 13 * MIB
    own = sum(offset % block == 0 for offset in offsets) / len(offsets)
    if block == 4 * KIB:
        assert own == 1
    elif run.cell.pattern.is_random:
        assert own < 0.2, "one of 32 places is aligned to 128K"
        assert len({offset % block for offset in offsets}) > 8
    else:
        assert {offset % block for offset in offsets} == {4 * KIB}


def flushes_by_the_kernel(device: Path) -> int:
    """Completed flushes of a device: field 16 of its statistics (Documentation/block/stat.rst)."""
    return int(Path(f"/sys/class/block/{device.name}/stat").read_text().split()[15])


@pytest.mark.fio
@pytest.mark.root
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
@pytest.mark.parametrize(("sync", "per_write"), [("", 0), ("fsync", 1), ("every 4", 0.25), ("dsync", 1)])
def test_writes_are_flushed_by_the_kernels_count(
    small_sweep: Sweep, loop_device: Callable[[int], Path], sync: str, per_write: float
) -> None:
    device = loop_device(16 * MIB)
    run = on_a_loop_device(small_sweep, device, "4K-randwrite", Load("s", sync=sync), iodepth=1, ramp_seconds=0)
    before = flushes_by_the_kernel(device)
    given = FioEngine().run(run).clients["c0"]
    assert given.metrics is not None, given.failure
    flushed = flushes_by_the_kernel(device) - before
    assert flushed == pytest.approx(per_write * given.metrics.n_ios, rel=0.02, abs=3)
    if sync in ("fsync", "every 4"):
        assert given.evidence["flushes"]["n"] == pytest.approx(flushed, abs=3)
        assert given.evidence["flushes"]["latency_mean_ns"] > 0
    else:
        assert "flushes" not in given.evidence


@pytest.mark.fio
@pytest.mark.root
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_reads_are_not_flushed(small_sweep: Sweep, loop_device: Callable[[int], Path]) -> None:
    run = on_a_loop_device(small_sweep, loop_device(16 * MIB), "4K-randread", Load("s", sync="dsync"))
    assert "sync=" not in render_job(run)
    given = FioEngine().run(run).clients["c0"]
    assert given.metrics is not None, given.failure


def test_an_image_through_librbd_has_no_dsync(small_sweep: Sweep) -> None:
    client = Client("c0", {"ioengine": "rbd", "rbdname": "x", "pool": "p", "clientname": "admin"}, 16 * MIB)
    m = replace(small_sweep.measurement, sync="dsync")
    with pytest.raises(InputError, match="write sync: fsync"):
        render_job(CellRun("A", Cell.parse("4K-write"), 0, 0, m, [client], {"c0": 1}))
