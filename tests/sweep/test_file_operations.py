"""Sweep files that measure operations on files, and runs of them on a file of this machine."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from cephfit import run_sweep as run_simulated
from cephfit.cli.main import cephfit
from cephfit.core.errors import InputError
from cephfit.core.protocols import NullProgress
from cephfit.core.units import KIB
from cephfit.core.values.cells import FileCell, FileOperation, FileSet, stored_cell
from cephfit.core.values.sample import State
from cephfit.measure.micro.file_places import FOLDER, FilePlace, Traffic
from cephfit.measure.micro.micro_engine import MicroEngine
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import bundled_sweep, parse_sweep, read_sweep
from cephfit.sweep.execution.preflight import engine_of
from cephfit.sweep.execution.runner import run_sweep
from cephfit.sweep.sweep_plan import Sweep, plan_of
from cephfit.targets.local import LocalTarget
from cephfit.targets.simulated import SimulatedTarget

TEXT = """
schema_version: 1
name: tiny
configurations: {A: {why: defaults}}
measurement:
  engine: micro
  operations: [create, append, open-read]
  sizes: [4K, 32K]
  files: 12
  file_size: 64K
  clients: 1
  volume_size: 8M
  repeats: 2
  run_seconds: 0.2
  seed: 1
  direct: false
  loads:
    durable: {sync: fsync}
    threads: {iodepth: 2, cells: [create]}
"""


def parsed(text: str = TEXT) -> Sweep:
    return parse_sweep(text, file="tiny.yaml")


def test_operations_with_data_have_each_size_and_names_have_none() -> None:
    measurement = parsed().measurement
    assert [str(c) for c in measurement.cells] == [
        "4K-open-read",
        "32K-open-read",
        "4K-append",
        "32K-append",
        "create",
    ]
    assert measurement.files == FileSet(12, 64 * KIB, 25, "ext4")


def test_loads_with_flushes_leave_out_what_only_reads() -> None:
    measurement = parsed().measurement
    assert [str(c) for c in measurement.under("durable").cells] == ["4K-append", "32K-append", "create"]
    assert measurement.under("durable").flush_interval == 1
    assert [str(c) for c in measurement.under("threads").cells] == ["create"]


def test_the_plan_has_every_operation_once_in_each_round() -> None:
    plan = plan_of(parsed())
    assert plan.n_runs == 2 * (5 + 3 + 1)
    assert all(isinstance(cell, FileCell) for step in plan.steps for cell in step.cells)


@pytest.mark.parametrize("cell", [FileCell.of(FileOperation.STAT), *parsed().measurement.cells])
def test_a_stored_operation_is_read_again(cell: FileCell) -> None:
    assert stored_cell(cell.size.name, cell.operation.value, where="here") == cell
    assert not FileOperation(cell.operation).value.startswith("rand"), "no name of a pattern"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("create, append", "created, append", "'created' is not a file operation"),
        ("create, append", "create, create", "create is given twice"),
        ("  files: 12\n", "", "lacks 'files'"),
        ("file_size: 64K", "file_size: 48K", "does not hold whole accesses of 32K"),
        ("files: 12", "files: 100", "need a volume of 19200K"),
        ("engine: micro", "engine: fio", "concerns operations on files"),
        ("seed: 1", "seed: 1\n  patterns: [read]", "micro does not support patterns"),
        ("seed: 1", "seed: 1\n  read_pct: 50", "micro does not support read_pct"),
        ("sync: fsync", "sync: dsync", "O_DSYNC"),
        ("name: tiny", "name: tiny\nstopping: {within_percent: 10, minimum: 2}", "nor an optimiser uses them"),
    ],
)
def test_what_cannot_be_measured_is_refused(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        parsed(TEXT.replace(old, new, 1).replace("repeats: 2", "repeats: 3"))
    assert caught.value.remedy


def test_the_ready_sweep_can_be_read() -> None:
    sweep = read_sweep(bundled_sweep("micro"))
    assert {c.operation for c in sweep.measurement.cells if isinstance(c, FileCell)} == set(FileOperation)
    assert all(configuration.why for configuration in sweep.configurations)


def test_a_simulation_has_no_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not operations on files"):
        engine_of(SimulatedTarget(), parsed().measurement)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, str]:
    """A run on a folder, whose traffic grows by 1000 bytes on the wire with each reading."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    readings = iter(range(0, 10**9, 1000))
    (tmp_path / "files").mkdir()
    engine = MicroEngine(
        place_of=lambda client: FilePlace(FOLDER, str(tmp_path / "files")),
        traffic=lambda: Traffic(next(readings), None, 0),
    )
    store = Store.open(tmp_path / "results.sqlite", create=True)
    target = LocalTarget(tmp_path / "volume")
    run = run_sweep(parsed(), target, store, NullProgress(), resume=None, engine=engine)
    target.reset()
    target.close()
    return store, run.run_id


@pytest.mark.slow
def test_advice_leaves_out_runs_of_operations_on_files(measured: tuple[Store, str], tmp_path: Path) -> None:
    measured[0].close()
    store = tmp_path / "results.sqlite"
    run_simulated("quick", target="sim", store=store)
    profile = Path(__file__).parents[2] / "docs" / "examples" / "profiles" / "pgbench.json"
    answer = CliRunner().invoke(cephfit, ["advise", str(profile), "--baselines", str(store)])
    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith("pgbench: use "), "the run on files is on another target, and newer or older"


def test_samples_are_stored_and_kept_apart_from_the_cells(measured: tuple[Store, str]) -> None:
    store, run_id = measured
    samples = store.file_samples(run_id)
    assert len(samples) == 2 * (5 + 3 + 1)
    assert {sample.state for sample in samples} == {State.OK}
    created = [s for s in samples if str(s.key.cell) == "create"]
    assert [s.metrics.n_ios for s in created if s.metrics] == [12] * 6
    assert all(s.evidence["asked"] == {"operations": 12, "nbytes": 0, "place": "folder"} for s in created)
    assert all(s.evidence["moved"]["wire_nbytes"] == 1000 for s in samples)
    assert all(s.evidence["flushes"]["n"] == 12 for s in created if s.key.load == "durable")
    assert store.run(run_id).finished
    with pytest.raises(InputError, match="operations on files"):
        store.samples(run_id)
