"""All figures from a simulation or an unfinished sweep are marked."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tiny_sweep import SWEEP

from cephfit import __version__
from cephfit.cli.check import verify_command
from cephfit.cli.fleets import place_command
from cephfit.cli.predict import map_command as map_command
from cephfit.cli.reports import report_command
from cephfit.cli.sweep.sweep_commands import command as sweep
from cephfit.core.errors import InputError
from cephfit.results.report.run_notes import continuations_of, keep_continuation
from cephfit.results.store.sample_store import Store
from cephfit.sweep.execution.preflight import _changed

PROFILE = {
    "schema_version": 1,
    "name": "small",
    "random_threshold_lbn": 128,
    "accesses": {"read": {"4K": 100}, "write": {}},
    "random": {"read": 0.5, "write": 0.0},
}


def give(command: object, *arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    place = tmp_path / "results.sqlite"
    result = give(sweep, "run", str(tmp_path / "tiny.yaml"), "--target", "sim", "--store", str(place))
    assert result.exit_code == 0, result.output
    return place


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(PROFILE))
    return str(path)


@pytest.mark.parametrize("command", [map_command.command, place_command.command], ids=["map", "place"])
def test_simulated_figures_are_marked(store: Path, profile: str, command: object) -> None:
    arguments = (profile, "--baselines", str(store))
    assert "SIMULATED" in give(command, *arguments).output
    measured = json.loads(give(command, *arguments, "--json").output)["measured"]
    assert (measured["simulated"], measured["finished"]) == (True, True)


def test_a_csv_file_does_not_record_the_origin_of_figures(profile: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.csv"
    rows = [f"{c},4K,{p},c0,{r},{10 + r}" for c in ("A", "B") for p in ("read", "randread") for r in (0, 1)]
    figures.write_text("configuration,size,pattern,client,run,iops\n" + "\n".join(rows) + "\n")
    said = give(map_command.command, profile, "--baselines", str(figures), "--json").output
    nothing = {"run": None, "simulated": None, "finished": None, "stopping": None, "continuations": []}
    nothing |= {"falling": None, "stalls": None, "imported": None}
    assert json.loads(said)["measured"] == nothing
    text = give(map_command.command, profile, "--baselines", str(figures)).output
    assert "Rows of the same run are read as one round in which all configurations" in text


@pytest.mark.parametrize("command", [map_command.command, place_command.command], ids=["map", "place"])
def test_a_race_is_marked(store: Path, profile: str, command: object) -> None:
    assert "STOPPED EARLY" not in give(command, profile, "--baselines", str(store)).output
    with Store.open(store) as opened:
        opened.put_document(opened.run(None).run_id, "stopping", {"looks": 1, "stopped": [], "races": []})
    assert "accounts for the interim analyses" in give(command, profile, "--baselines", str(store)).output


@pytest.fixture
def continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a run that began on another Ceph version and was continued twice."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    place = tmp_path / "continued.sqlite"
    arguments = ("run", str(tmp_path / "tiny.yaml"), "--target", "sim", "--store", str(place))
    assert give(sweep, *arguments).exit_code == 0
    with Store.open(place) as opened:
        run = opened.run()
        versions = {"ceph": {"ceph version 16.2.15": 7}, **run.facts["versions"]}
        engine = {**run.facts["engine"], "version": "fio-3.33"}
        begun = replace(run, run_id="begun", finished=False, created_ns=2**62)
        opened.add_run(replace(begun, facts={**run.facts, "versions": versions, "engine": engine}))
        samples = opened.samples(run.run_id)
        opened.add_samples("begun", [s for s in samples if s.key.repeat == 0], fio_json=None)
    assert (
        "since run begun began, versions.ceph changed from ceph version 16.2.15 to unknown"
        in give(sweep, *arguments).output
    )
    with Store.open(place) as opened:
        assert opened.run("begun").finished
    return place


@pytest.mark.parametrize("command", [map_command.command, place_command.command], ids=["map", "place"])
def test_a_run_continued_with_other_versions_is_marked(
    continued: Path, profile: str, tmp_path: Path, command: object
) -> None:
    said = give(command, profile, "--baselines", str(continued)).output
    assert said.count("OTHER VERSIONS: The run was continued at ") == 1
    assert "versions.ceph changed from ceph version 16.2.15 to unknown; " in said
    assert f"engine.version changed from fio-3.33 to {__version__}. Its figures are from both" in said
    measured = json.loads(give(command, profile, "--baselines", str(continued), "--json").output)["measured"]
    assert len(measured["continuations"]) == 1
    page = tmp_path / "page.html"
    give(report_command.command, "--store", str(continued), "-o", str(page))
    assert page.read_text().count("versions.ceph changed from ceph version 16.2.15 to unknown") == 1


def test_each_version_change_is_stored_once(continued: Path, store: Path) -> None:
    with Store.open(continued) as opened:
        (first,) = continuations_of(opened, "begun")
        keep_continuation(opened, "begun", ["versions.ceph changed from ceph version 16.2.15 to unknown"], at_ns=1)
        assert continuations_of(opened, "begun") == (first,)
        keep_continuation(opened, "begun", ["versions.ceph changed from 16.2.15 to 17.2.7"], at_ns=1)
        assert "16.2.15 to 17.2.7. Its figures" in continuations_of(opened, "begun")[1]
    with Store.open(store) as opened:
        run = opened.run()
        opened.add_run(replace(run, run_id="same", finished=False, created_ns=2**62))
    file = str(store.with_name("tiny.yaml"))
    assert give(sweep, "run", file, "--target", "sim", "--store", str(store)).exit_code == 0
    with Store.open(store) as opened:
        assert opened.run("same").finished
        assert continuations_of(opened, "same") == ()


def test_the_weights_of_the_heaviest_cells_fit_80_columns(store: Path, profile: str) -> None:
    lines = give(map_command.command, profile, "--baselines", str(store)).output.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("The cells that matter most"))
    size, pattern, weight, *_ = lines[begin + 1 :]
    cells = [f"{s}-{p}" for s, p in zip(size.split(), pattern.split(), strict=True)]
    assert set(cells) <= {"4K-read", "4K-write", "4K-randread", "4K-randwrite"}
    assert weight.count("%") == len(cells)
    assert max(map(len, (size, pattern, weight))) <= 80


@pytest.mark.parametrize("what", ["samples", "baselines"])
def test_simulated_figures_are_marked_also_from_exported_csv(
    store: Path, profile: str, tmp_path: Path, what: str
) -> None:
    figures = tmp_path / f"{what}.csv"
    give(report_command.command, "--store", str(store), "-o", str(figures), "--what", what)
    with figures.open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["target"], row["simulated"]) for row in rows} == {("sim", "true")}
    text = give(map_command.command, profile, "--baselines", str(figures)).output
    assert "SIMULATED" in text
    assert "does not state how it was measured" not in text


def test_an_unfinished_sweep_is_marked_and_missing_cells_are_named(store: Path, profile: str) -> None:
    half = store.with_name("half.sqlite")
    with Store.open(str(store)) as whole, Store.open(str(half), create=True) as part:
        run = whole.run()
        part.add_run(replace(run, finished=False))
        samples = [s for s in whole.samples(run.run_id) if s.key.configuration == "ssd"]
        part.add_samples(run.run_id, samples, fio_json=None)
    with pytest.raises(InputError, match="no figures of A") as caught:
        give(map_command.command, profile, "--baselines", str(half))
    assert "`cephfit sweep run`" in caught.value.remedy


def test_a_real_workload_is_refused_on_a_simulation(store: Path, profile: str) -> None:
    file = str(store.with_name("tiny.yaml"))
    arguments = ("--sweep", file, "--store", str(store), "--target", "sim", "--profile", profile)
    with pytest.raises(InputError, match="no disks for a real workload"):
        give(verify_command.command, *arguments, "--workload", "pgbench")
    with Store.open(str(store)) as opened:
        assert not opened.workload_samples(opened.run().run_id), "nothing of it is in the store"


def test_a_report_names_its_run_if_there_are_several(store: Path, tmp_path: Path) -> None:
    arguments = ("--store", str(store), "-o", str(tmp_path / "report.html"))
    assert "the newest of" not in give(report_command.command, *arguments).output
    with Store.open(str(store)) as opened:
        opened.add_run(replace(opened.run(), run_id="later", created_ns=2**62, finished=False))
    assert "It covers run later on sim, the newest of 2" in give(report_command.command, *arguments).output
    assert "the newest of" not in give(report_command.command, *arguments, "--run", "later").output


@pytest.mark.parametrize("command", [map_command.command, place_command.command], ids=["map", "place"])
def test_a_run_that_begins_meanwhile_does_not_get_results_of_another(
    store: Path, profile: str, command: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shared store, the newest run may change at any time."""
    from cephfit.results.report import run_notes as notes

    with Store.open(str(store)) as opened:
        mine = opened.run()
    asked = notes.run_document

    def asked_and_then_another_begins(location: str, run_id: str | None) -> dict[str, object]:
        document = asked(location, run_id)
        with Store.open(location) as opened:
            opened.add_run(replace(mine, run_id="meanwhile", created_ns=2**62, finished=False))
        return document

    monkeypatch.setattr(notes, "run_document", asked_and_then_another_begins)
    document = json.loads(give(command, profile, "--baselines", str(store), "--json").output)
    assert document["measured"]["run"] == mine.run_id
    with Store.open(str(store)) as opened:
        assert opened.run().run_id == "meanwhile"
        assert opened.document("meanwhile", "predictions") is None
        if command is map_command.command:
            assert opened.document(mine.run_id, "predictions") is not None


def test_a_changed_number_of_daemons_is_not_a_version_change() -> None:
    before = {"versions": {"ceph": {"ceph version 16.2.15 pacific": 7}}}
    assert _changed(before, {"versions": {"ceph": {"ceph version 16.2.15 pacific": 6}}}) == []
    upgraded = {"versions": {"ceph": {"ceph version 17.2.7 quincy": 3, "ceph version 16.2.15 pacific": 4}}}
    was, both = "ceph version 16.2.15 pacific", "ceph version 16.2.15 pacific, ceph version 17.2.7 quincy"
    assert _changed(before, upgraded) == [f"versions.ceph changed from {was} to {both}"]
