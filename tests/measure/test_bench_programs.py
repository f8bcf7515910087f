"""What rados bench and rbd bench write, as Ceph 16.2 wrote it, becomes metrics or a reason why not."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cephfit.core.errors import InputError
from cephfit.core.journal import Journal
from cephfit.core.protocols import Client, NullProgress
from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.sample import State
from cephfit.measure.engine import CellOutcome, CellRun
from cephfit.measure.surveillance import Circumstances, judge
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import bundled_sweep, parse_sweep, read_sweep
from cephfit.sweep.execution.preflight import engine_of
from cephfit.sweep.execution.runner import run_sweep
from cephfit.sweep.sweep_plan import Sweep
from cephfit.targets.simulated import SimulatedTarget

pytest.importorskip("rados", reason="python3-rados is not installed")

from cephfit.measure import rados_bench, rbd_bench
from cephfit.measure.bench_process import Ended, image_of
from cephfit.measure.osd_watch import OsdCount, OsdWatch
from cephfit.targets.ceph.change_scopes import OnlyPool

WRITE = """hints = 1
{"concurrent_ios":"4","object_size":"4096","op_size":"4096","seconds_to_run":"3","max_objects":"0",\
"object_prefix":"benchmark_data_vm_8654","datas":[{"sec":"0","cur_ops":"4","started":"4","finished":"0",\
"avg_bw":"0.000000","cur_bw":"0.000000","last_lat":"0.000000","avg_lat":"0.000000"}],"total_time_run":"3.008527",\
"total_writes_made":"527","write_size":"4096","object_size":"4096","bandwidth":"0.684253",\
"stddev_bandwidth":"0.060809","max_bandwidth":"0.738281","min_bandwidth":"0.617188","average_iops":"175",\
"stddev_iops":"902210480","max_iops":"189","min_iops":"158","average_latency":"0.022824",\
"stddev_latency":"0.031263","max_latency":"0.202077","min_latency":"0.001382"}
"""
SHORT_READ = """hints = 1
{"datas":[],"total_time_run":"0.050621","total_reads_made":"40","read_size":"65536","object_size":"65536",\
"bandwidth":"49.386418","average_iops":"790","stddev_iops":"0.000000","max_iops":"38","min_iops":"38",\
"average_latency":"0.004952","max_latency":"0.016136","min_latency":"0.000510"}
"""
RBD = """bench  type read io_size 1048576 io_threads 2 bytes 268435456 pattern sequential
  SEC       OPS   OPS/SEC   BYTES/SEC
    1       220       222   222 MiB/s
elapsed: 1   ops: 256   ops/sec: 228.571   bytes/sec: 229 MiB/s
"""


def test_rados_bench_is_believed_where_it_is_sound() -> None:
    metrics = rados_bench.metrics_of(rados_bench.parse(WRITE), Cell.parse("4K-write"), iodepth=4, seconds=3)
    assert metrics.iops == pytest.approx(527 / 3.008527), "not the whole number 175 that it prints"
    assert metrics.nbytes_per_s == pytest.approx(527 * 4096 / 3.008527)
    assert (metrics.n_ios, metrics.latency_mean_ns) == (527, 22_824_000)
    assert metrics.latency_percentiles_ns == {}


def test_a_read_that_ran_out_of_objects_is_still_a_rate_if_there_were_enough() -> None:
    document = rados_bench.parse(SHORT_READ)
    cell = replace(Cell.parse("32K-read"))
    with pytest.raises(ValueError, match="blocks of 65536 bytes, not 32768"):
        rados_bench.metrics_of(document, cell, iodepth=4, seconds=5)
    document = {**document, "read_size": "32768"}
    assert rados_bench.metrics_of(document, cell, iodepth=4, seconds=5).runtime_ns == 50_621_000
    with pytest.raises(ValueError, match="only 12 objects"):
        rados_bench.metrics_of({**document, "total_reads_made": "12"}, cell, iodepth=4, seconds=5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"total_time_run": None}, "total_time_run is None"),
        ({"average_latency": "nan"}, "average_latency is 'nan'"),
        ({"average_latency": "1.8e308"}, "average_latency is '1.8e308'"),
        ({"average_latency": "3.0"}, "needs more than 4"),
        ({"total_writes_made": "0"}, "no operation ended"),
        ({"total_writes_made": "-5"}, "total_writes_made is '-5'"),
    ],
)
def test_figures_of_rados_bench_that_cannot_be_are_refused(changes: dict[str, object], said: str) -> None:
    document = {**rados_bench.parse(WRITE), **changes}
    with pytest.raises(ValueError, match=said):
        rados_bench.metrics_of(document, Cell.parse("4K-write"), iodepth=4, seconds=3)


@pytest.mark.parametrize("output", ["", "hints = 1\n", WRITE[:400], "[1]", "error 2: (2) No such file"])
def test_output_of_rados_bench_that_is_cut_off_is_no_result(output: str) -> None:
    with pytest.raises(ValueError):
        rados_bench.parse(output)


def test_rbd_benchs_rate_tells_the_time_that_it_rounds_away() -> None:
    metrics = rbd_bench.metrics_of(Ended(RBD, ""), Cell.parse("1M-read"), iodepth=2)
    assert metrics.iops == 228.571
    assert metrics.runtime_ns == pytest.approx(256 / 228.571 * 1e9), "1.12 s, where it prints 1"
    assert metrics.latency_mean_ns == pytest.approx(2 / 228.571 * 1e9), "Little's law"


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (Ended("", "rbd: error opening image"), "rbd bench: rbd: error opening image"),
        (Ended(RBD.split("elapsed")[0], ""), "wrote no result"),
        (Ended(RBD.replace("io_threads 2", "io_threads 3"), ""), "not \\('read', 1048576, 2\\)"),
        (Ended(RBD.replace("ops: 256", "ops: 0"), ""), "did 0 I/Os"),
    ],
)
def test_output_of_rbd_bench_that_is_none_is_said(ended: Ended, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rbd_bench.metrics_of(ended, Cell.parse("1M-read"), iodepth=2)


def test_osds_that_deny_what_rados_bench_says_make_a_sample_invalid_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def osds_that_saw_little(clients: Sequence[Client]) -> Iterator[OsdWatch]:
        yield OsdWatch(OsdCount(read_nbytes=0, written_nbytes=4096))

    monkeypatch.setattr(rados_bench, "watch_osds", osds_that_saw_little)
    monkeypatch.setattr(rados_bench, "run_together", lambda commands, **_: {n: Ended(WRITE, "") for n in commands})
    shape = "{clients: 1, volume_size: 32M, repeats: 1, run_seconds: 3, iodepth: 4, seed: 1}"
    sweep = parse_sweep(f"{{schema_version: 1, name: x, measurement: {shape}}}", file="x")
    client = Client("c0", {"pool": "p", "rbdname": "i"}, 1 << 30)
    run = CellRun("A", Cell.parse("4K-write"), 0, 0, sweep.measurement, [client], {"c0": 1})
    (sample,) = judge(run, rados_bench.RadosBenchEngine().run(run), Circumstances(1, 2, (1, 2), (), 1))
    assert sample.state is State.INVALID
    assert sample.reason.startswith("rados bench reports 2158592 bytes moved, but the OSDs, for 1 clients")


def test_rados_bench_keeps_to_a_namespace_of_its_own_so_that_cleaning_up_deletes_nobody_elses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`rados cleanup --run-name` deletes every benchmark_data_HOST* that it sees where it finds no such run."""
    commands: list[Sequence[str]] = []

    def no_programs(wanted: Mapping[str, Sequence[str]], **_: object) -> dict[str, Ended]:
        commands.extend(wanted.values())
        return {name: Ended(WRITE, "") for name in wanted}

    @contextmanager
    def silent(clients: Sequence[Client]) -> Iterator[OsdWatch]:
        yield OsdWatch(OsdCount(0, 0))

    monkeypatch.setattr(rados_bench, "run_together", no_programs)
    monkeypatch.setattr(rados_bench, "watch_osds", silent)
    shape = "{clients: 1, volume_size: 32M, repeats: 1, run_seconds: 3, iodepth: 4, seed: 1}"
    sweep = parse_sweep(f"{{schema_version: 1, name: x, measurement: {shape}}}", file="x")
    run = CellRun(
        "A",
        Cell.parse("4K-read"),
        0,
        0,
        sweep.measurement,
        [Client("c0", {"pool": "p", "rbdname": "i"}, 1 << 30)],
        {},
    )
    engine = rados_bench.RadosBenchEngine()
    engine.prepare(run)
    engine.warm(run)
    engine.run(run)
    done = [next(word for word in command if word in ("cleanup", "write", "seq")) for command in commands]
    assert done == ["cleanup", "write", "seq", "seq", "cleanup"]
    for command in commands:
        assert command[command.index("--namespace") + 1] == "cephfit-i", command


def test_rados_bench_is_refused_where_nothing_but_images_may_be_touched(tmp_path: Path) -> None:
    """In the dry run, and by whoever measures before the first image is made."""
    quick = read_sweep(bundled_sweep("quick"))
    measurement = replace(quick.measurement, engine="rados-bench")
    nothing: Any = None
    changes = OnlyPool("rbd", nothing, Journal(tmp_path / "journal"), nothing)
    said = "rados-bench writes objects other than images, and only images may be touched in pool rbd"
    with pytest.raises(InputError, match=said) as caught:
        changes.preview(replace(quick, measurement=measurement), [Configuration("A")])
    assert "use engine: fio or rbd-bench" in str(caught.value)
    target: Any = SimpleNamespace(only_pool="rbd")
    with pytest.raises(InputError, match=said):
        engine_of(target, measurement)
    target.only_pool = ""
    assert isinstance(engine_of(target, measurement), rados_bench.RadosBenchEngine)


def test_a_client_that_is_no_image_cannot_be_measured_by_them() -> None:
    with pytest.raises(InputError, match="not an RBD image"):
        image_of(Client("c0", {"filename": "/dev/loop3"}, 1))
    options = {"pool": "p", "rbdname": "i", "clientname": "bench", "conf": "/x/ceph.conf"}
    assert image_of(Client("c0", options, 1)).access == ("--conf", "/x/ceph.conf", "--id", "bench")


class NoWrites:
    """The simulation, but by an engine that cannot write and must be prepared."""

    def __init__(self, target: SimulatedTarget) -> None:
        self._engine = target.engine()
        self.facts, self.warm = self._engine.facts, self._engine.warm
        self.prepared: list[Cell] = []

    def cannot(self, cell: Cell, measurement: object) -> str:
        return "it cannot write" if "write" in cell.pattern.value else ""

    def prepare(self, run: CellRun) -> None:
        self.prepared.append(run.cell)

    def run(self, run: CellRun) -> CellOutcome:
        assert self.prepared[-1] == run.cell
        return self._engine.run(run)


def test_cells_that_an_engine_cannot_measure_are_skipped_with_the_reason(small_sweep: Sweep, store: Store) -> None:
    target = SimulatedTarget()
    engine = NoWrites(target)
    run = run_sweep(small_sweep, target, store, NullProgress(), resume=None, engine=engine)
    samples = store.samples(run.run_id)
    skipped = [s for s in samples if s.state is State.SKIPPED]
    assert {(str(s.key.cell), s.reason) for s in skipped} == {
        ("4K-randwrite", "it cannot write"),
        ("1M-randwrite", "it cannot write"),
    }
    assert len(skipped) == len(samples) / 2
    assert all(s.state is State.OK for s in samples if s not in skipped)
    assert len(engine.prepared) == 3 * 2 * 2, "once per configuration, readable cell and round"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("  engine: rados-bench\n", "rados-bench has no ramp"),
        ("  engine: rbd-bench\n  ioengine: libaio\n", "ioengine is an option of fio"),
        ("  engine: rbd-bench\n  loads: {m: {read_pct: 50}}\n", "rbd-bench does not support read_pct"),
        ("  engine: dd\n", "'dd' is not a measurement.engine"),
    ],
)
def test_words_that_an_engine_has_nothing_for_are_refused(small_text: str, words: str, said: str) -> None:
    text = small_text if "no ramp" in said else small_text.replace("  ramp_seconds: 0.2\n", "")
    with pytest.raises(InputError, match=said):
        parse_sweep(text + words, file="small.yaml")


def test_the_engine_is_part_of_what_a_sweep_is(small_text: str) -> None:
    text = small_text.replace("  ramp_seconds: 0.2\n", "")
    by_fio, by_rbd = (parse_sweep(text + more, file="x") for more in ("", "  engine: rbd-bench\n"))
    assert by_fio.digest != by_rbd.digest
    assert by_rbd.measurement.ioengine == "rbd", "so that targets give images instead of devices"
    assert json.loads(json.dumps(by_rbd.measurement.to_json()))["engine"] == "rbd-bench"
