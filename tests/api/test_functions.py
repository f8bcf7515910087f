"""The functions of the Python API do the same as the commands, with the same messages."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import delete, update

import cephfit
from cephfit.cli.main import cephfit as command_line
from cephfit.core.values.sample import State, WorkloadSample
from cephfit.operations.model_assessment import ASSESSED
from cephfit.results.store import schema
from cephfit.results.store.sample_store import Store as ResultsStore

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
PGBENCH = EXAMPLES / "profiles" / "pgbench.json"
MEASURED = {"A": [100.0, 102.0], "ssd": [598.0, 615.0], "striped": [103.0, 104.0], "journaling": [60.0, 64.0]}
SMALL = """\
schema_version: 1
name: small
description: two configurations, four cells
configurations:
  A: {why: the default}
  striped: {why: striped images, image: {stripe_unit: 64K, stripe_count: 8}}
measurement:
  sizes: [4K]
  patterns: [read, write, randread, randwrite]
  clients: 2
  volume_size: 512M
  repeats: 2
  ramp_seconds: 0.3
  run_seconds: 1.2
  ioengine: libaio
  iodepth: 1
  direct: true
  cache: cold
  seed: 1
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "sim.sqlite"
    cephfit.run_sweep("quick", target="sim", store=path)
    return path


def interrupt(path: Path) -> None:
    """Reduce a run to the state after a kill: its first 20 samples, unfinished."""
    with ResultsStore.open(path) as results, results._writing() as connection:
        connection.execute(update(schema.runs).values(finished=False))
        connection.execute(delete(schema.samples).where(schema.samples.c.id > 20))


def command(*argv: str) -> str:
    result = CliRunner().invoke(command_line, argv, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_predict_gives_what_map_gives(store: Path) -> None:
    mapped = json.loads(command("map", str(PGBENCH), "--baselines", str(store), "--json", "--model", "meyer"))
    predictions = cephfit.predict(cephfit.read_profile(PGBENCH), cephfit.read_baselines(store), model="meyer")
    found = predictions.to_json()
    assert found["predictions"] == mapped["predictions"]
    assert (found["best"], found["worst"]) == (mapped["best"], mapped["worst"])
    with cephfit.open_store(store) as opened:  # and what map stored is read back
        stored, profile = opened.predictions(), opened.profile()
    assert stored is not None
    assert stored.best == predictions.best
    assert profile == cephfit.read_profile(PGBENCH)


def test_baselines_of_a_csv_file_have_no_runs() -> None:
    csv = EXAMPLES / "ranks-differ.csv"
    baselines = cephfit.read_baselines(csv)
    assert baselines.is_finished is None
    assert "does not state how it was measured" in baselines.notes[0]
    with pytest.raises(cephfit.InputError, match="no runs to choose from"):
        cephfit.read_baselines(csv, "quick-1")


def test_a_run_is_found_by_its_id_and_a_wrong_id_names_those_there_are(store: Path) -> None:
    with cephfit.open_store(store) as opened:
        run = opened.run()
        assert opened.run(run.run_id) == opened.run(run) == run
        assert opened.baselines(run) == cephfit.read_baselines(store, run.run_id)
        with pytest.raises(cephfit.StoreError, match="there are: quick-"):
            opened.samples("quick-1")


def test_a_missing_store_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(cephfit.StoreError):
        cephfit.open_store(tmp_path / "none.sqlite")
    assert not (tmp_path / "none.sqlite").exists()


def test_the_same_call_continues_an_unfinished_run(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    path = tmp_path / "results.sqlite"
    first = cephfit.run_sweep(tmp_path / "small.yaml", store=path)
    assert first.finished
    assert first.is_simulated
    interrupt(path)
    assert cephfit.run_sweep(tmp_path / "small.yaml", store=path).run_id == first.run_id
    assert len(cephfit.open_store(path).samples().to_frame()) == 32
    assert cephfit.run_sweep(tmp_path / "small.yaml", store=path, new=True).run_id != first.run_id


def test_an_unfinished_run_is_marked_with_the_way_to_continue(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    path = tmp_path / "results.sqlite"
    cephfit.run_sweep(tmp_path / "small.yaml", store=path)
    interrupt(path)
    baselines = cephfit.read_baselines(path)
    assert any(note.startswith("UNFINISHED") for note in baselines.notes)
    with pytest.raises(cephfit.InputError, match="the run is not finished"):
        cephfit.predict(cephfit.read_profile(PGBENCH), baselines)


def test_an_existing_cluster_is_not_changed_without_apply(tmp_path: Path) -> None:
    with pytest.raises(cephfit.InputError, match="changes nothing on it without --apply"):
        cephfit.run_sweep("one-pool", target="ceph", store=tmp_path / "s.sqlite", cluster={"only_pool": "bench"})
    assert not (tmp_path / "s.sqlite").exists()


def test_a_wrong_connection_option_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(cephfit.InputError, match="no connection option 'pool'") as error:
        cephfit.run_sweep("one-pool", target="ceph", store=tmp_path / "s.sqlite", cluster={"pool": "bench"})
    assert "only_pool" in error.value.remedy
    assert "id" in error.value.remedy.split(", ")
    with pytest.raises(cephfit.InputError, match="'carrier pigeon' is not a value"):
        cephfit.run_sweep(
            "one-pool", target="ceph", store=tmp_path / "s.sqlite", cluster={"admin": "carrier pigeon"}
        )
    with pytest.raises(cephfit.InputError, match="--id, --ssh-host: only for --target ceph"):
        cephfit.run_sweep("quick", store=tmp_path / "s.sqlite", cluster={"id": "x", "ssh_host": "a=b"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"action": "X"}, "'X' is not a value of action"),
        ({"describe": "all"}, "'all' is not a value of describe"),
        ({"assume_op": "trim"}, "'trim' is not a value of assume_op"),
        ({"format": "cassette"}, "cassette"),
    ],
)
def test_profile_trace_names_a_wrong_argument(tmp_path: Path, words: dict[str, str], message: str) -> None:
    (tmp_path / "t.csv").write_text("1,0,0,4096\n")
    with pytest.raises(cephfit.InputError, match=message):
        cephfit.profile_trace(tmp_path / "t.csv", **words)  # type: ignore[arg-type]


def test_profile_trace_counts_what_the_command_counts(tmp_path: Path) -> None:
    lines = "".join(f"{100 * i},{i % 2},{40960 * i},4096\n" for i in range(20))
    (tmp_path / "t.csv").write_text(lines)
    columns = "time:us,op:0/1,offset:bytes,length:bytes"
    said = json.loads(command("trace", "profile", str(tmp_path / "t.csv"), "--columns", columns, "--json"))
    for paths in (tmp_path / "t.csv", [str(tmp_path / "t.csv")]):
        assert cephfit.profile_trace(paths, columns=columns).to_json() == said


def test_assess_of_a_store_without_verified_runs_says_what_to_do(store: Path) -> None:
    with pytest.raises(cephfit.InputError, match="no run was verified") as error:
        cephfit.assess(store)
    assert "cephfit verify" in error.value.remedy


def test_assess_reads_the_runs_that_verify_stored(store: Path) -> None:
    command("map", str(PGBENCH), "--baselines", str(store))
    with ResultsStore.open(store) as results:
        run = results.run()
        for name, values in MEASURED.items():
            for repeat, value in enumerate(values):
                sample = WorkloadSample(name, repeat, 0, State.OK, "tps", value, 0, 1)
                results.add_workload_sample(run.run_id, "pgbench", sample)
    accuracy = cephfit.assess(store)
    assert accuracy.models == ASSESSED
    frame = accuracy.of("time").to_frame().set_index("configuration")
    assert set(frame.index) == set(MEASURED)
    assert set(frame["workload"]) == {"pgbench"}
    assert set(frame["metric"]) == {"tps"}
    assert frame.loc["ssd", "ratio"] == pytest.approx(frame.loc["ssd", "predicted"] / frame.loc["ssd", "measured"])
    given = cephfit.assess(store, run, measured=MEASURED, metric="tps", profiles=cephfit.read_profile(PGBENCH))
    assert given.to_frame().equals(accuracy.to_frame())
    with cephfit.open_store(store) as opened:
        assert cephfit.assess(opened, [run.run_id], models=["time"]).models == ("time",)
        runs = opened.workload_runs().to_frame()  # the store is still open
    assert runs.groupby("configuration", sort=False)["value"].apply(list).to_dict() == MEASURED


def test_a_run_that_cannot_be_assessed_is_noted_and_the_others_are_assessed(store: Path, tmp_path: Path) -> None:
    without_writes = SMALL.replace("[read, write, randread, randwrite]", "[read, randread]")
    (tmp_path / "small.yaml").write_text(without_writes)
    cephfit.run_sweep(tmp_path / "small.yaml", store=store)
    with ResultsStore.open(store) as results:
        for run in results.runs():
            for name in ("A", "striped"):
                sample = WorkloadSample(name, 0, 0, State.OK, "tps", 100.0, 0, 1)
                results.add_workload_sample(run.run_id, "pgbench", sample)
    accuracy = cephfit.assess(store, profiles=cephfit.read_profile(PGBENCH))
    assert {v.run.split("-")[0] for v in accuracy.verified} == {"quick"}
    assert any(note.startswith("not assessed:") and "no baseline" in note for note in accuracy.notes)


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ({"A": [1.0], "sdd": [2.0]}, "there are no baselines of the configuration 'sdd'"),
        ({"A": [1.0], "ssd": [0.0]}, "0.0 is not a value that can be compared"),
        ({"ssd": [2.0]}, "there is no value under the default A"),
    ],
)
def test_wrong_measured_values_are_named(store: Path, measured: dict[str, list[float]], message: str) -> None:
    with pytest.raises(cephfit.InputError, match=message):
        cephfit.assess(store, measured=measured, profiles=cephfit.read_profile(PGBENCH))


def test_measured_values_need_one_profile(store: Path) -> None:
    with pytest.raises(cephfit.InputError, match="of one run and one workload"):
        cephfit.assess(store, measured=MEASURED)
