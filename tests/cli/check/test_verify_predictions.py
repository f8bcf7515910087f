"""The prediction that `cephfit verify` verifies, and the one that `cephfit map` stored."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tiny_sweep import SWEEP

from cephfit.cli.check.assess_command import command as assess
from cephfit.cli.check.verify_command import command as verify
from cephfit.cli.predict import map_command as map_command
from cephfit.core.errors import InputError
from cephfit.core.values.cells import CELLS, Cell
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import WORKLOAD_PROFILE_DOCUMENT, Metrics, Run, Sample, SampleKey, State
from cephfit.results.store.sample_store import Store, kind_of
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.targets.simulated_workload import seconds_of

PROFILE = {
    "schema_version": 1,
    "name": "pgbench",
    "accesses": {"read": {"4K": 100}, "write": {}},
    "random": {"read": 0.5, "write": 0.0},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep file, a profile, and a store of the sweep's finished run."""
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    (tmp_path / "p.json").write_text(json.dumps(PROFILE))
    digest = parse_sweep(SWEEP, file="tiny.yaml").digest
    with Store.open(tmp_path / "results.sqlite", create=True) as store:
        store.add_run(Run("r1", "tiny", SWEEP, digest, "sim", 1, 1))
        for name, speed in {"A": 1.0, "ssd": 2.0}.items():
            for cell in CELLS:
                for repeat, wobble in enumerate((0.99, 1.01)):
                    store.add_samples("r1", [_sample(name, cell, repeat, 100 * speed * wobble)], fio_json=None)
    return tmp_path


def json_of(result: Result) -> Any:
    """The document that a command printed; some versions of Click mix it with the progress before it."""
    return json.loads(result.stdout[result.stdout.index("{") :])


def _sample(configuration: str, cell: Cell, repeat: int, iops: float) -> Sample:
    metrics = Metrics(iops, iops * cell.size.benchmark_nbytes, max(1, round(iops)), 10**9, 1e9 / iops)
    return Sample(SampleKey(configuration, cell, "c0", repeat), State.OK, metrics, 0, 1)


def mapped(folder: Path, *options: str) -> None:
    arguments = [str(folder / "p.json"), "--baselines", str(folder / "results.sqlite"), *options]
    assert CliRunner().invoke(map_command.command, arguments, catch_exceptions=False).exit_code == 0


def verified(folder: Path, *options: str) -> str:
    """The output until the simulated target is refused for its missing disks, when predictions are stored."""
    arguments = [
        "--sweep",
        str(folder / "tiny.yaml"),
        "--store",
        str(folder / "results.sqlite"),
        "--target",
        "sim",
    ]
    result = CliRunner().invoke(verify, [*arguments, "--workload", "pgbench", *options])
    assert isinstance(result.exception, InputError), result.output
    assert "a simulated cluster has no disks" in str(result.exception)
    return result.output


def stored(folder: Path) -> dict[str, Any]:
    with Store.open(folder / "results.sqlite") as store:
        document = store.document("r1", "predictions")
    assert document is not None
    return dict(document)


def test_model_and_confidence_are_those_of_the_mapping(folder: Path) -> None:
    mapped(folder, "--model", "meyer", "--confidence", "0.99")
    assert "this verifies the prediction" not in verified(folder)
    assert (stored(folder)["model"], stored(folder)["confidence"]) == ("meyer", 0.99)


@pytest.mark.parametrize("options", [("--model", "time"), ("--confidence", "0.9")], ids=" ".join)
def test_a_prediction_of_another_kind_is_judged_without_taking_the_mapped_ones_place(
    folder: Path, options: tuple[str, str]
) -> None:
    mapped(folder, "--model", "meyer", "--confidence", "0.99")
    before = stored(folder)
    assert "still shows the stored one, for pgbench by meyer at 99 %" in verified(folder, *options)
    assert stored(folder) == before


def test_what_was_measured_since_the_mapping_counts(folder: Path) -> None:
    mapped(folder)
    before = stored(folder)
    with Store.open(folder / "results.sqlite") as store:
        for cell in CELLS:
            store.add_samples("r1", [_sample("A", cell, 2, 100.0), _sample("ssd", cell, 2, 150.0)], fio_json=None)
    verified(folder)
    assert stored(folder)["predictions"] != before["predictions"]


def test_another_workload_is_predicted_as_the_first_was_and_is_what_the_report_speaks_of(folder: Path) -> None:
    mapped(folder, "--model", "meyer")
    (folder / "other.json").write_text(json.dumps({**PROFILE, "name": "other"}))
    verified(folder, "--profile", str(folder / "other.json"))
    assert (stored(folder)["model"], stored(folder)["profile"]) == ("meyer", "other")


def test_unmapped_it_is_the_time_model_and_is_kept(folder: Path) -> None:
    verified(folder, "--profile", str(folder / "p.json"))
    assert (stored(folder)["model"], stored(folder)["confidence"]) == ("time", 0.95)


def test_on_a_simulated_target_the_profile_runs_at_the_true_rates(folder: Path) -> None:
    profile = Profile.loads((folder / "p.json").read_text())
    mapped(folder)
    arguments = ["--sweep", str(folder / "tiny.yaml"), "--store", str(folder / "results.sqlite")]
    result = CliRunner().invoke(
        verify,
        [*arguments, "--target", "sim:noise=0", "--configurations", "ssd", "--json"],
        catch_exceptions=False,
    )
    rows = {row["configuration"]: row for row in json_of(result)["rows"]}
    tiny = {c.name: c for c in parse_sweep(SWEEP, file="tiny.yaml").configurations}
    seconds = {name: seconds_of(profile, tiny[name]) for name in ("A", "ssd")}
    assert rows["A"]["values"] == pytest.approx([100 / seconds["A"]] * 3)
    assert rows["ssd"]["measured"]["relative"] == pytest.approx(100 * seconds["A"] / seconds["ssd"])
    with Store.open(folder / "results.sqlite") as store:
        samples = [sample for workload, sample in store.workload_samples("r1") if workload == "pgbench"]
    assert {s.evidence["output"]["simulated"] for s in samples} == {True}


def test_a_real_target_does_not_run_a_profile(folder: Path) -> None:
    mapped(folder)
    arguments = ["--sweep", str(folder / "tiny.yaml"), "--store", str(folder / "results.sqlite")]
    refused = CliRunner().invoke(
        verify, [*arguments, "--target", f"local:{folder / 'v'}", "--workload", "profile"]
    )
    assert "only a simulated target can run the accesses of a profile" in str(refused.exception)


def test_each_workload_of_a_run_keeps_its_profile_and_can_be_assessed(folder: Path) -> None:
    store, sweep = str(folder / "results.sqlite"), str(folder / "tiny.yaml")
    for name in ("shop", "mail"):
        (folder / f"{name}.json").write_text(json.dumps({**PROFILE, "name": name}))
        arguments = ["--sweep", sweep, "--store", store, "--target", "sim", "--configurations", "ssd"]
        given = [*arguments, "--profile", str(folder / f"{name}.json")]
        assert CliRunner().invoke(verify, given, catch_exceptions=False).exit_code == 0
    with Store.open(store) as opened:
        names = {name for name, _ in opened.workload_samples("r1")}
        assert names == {"shop", "mail"}
        for name in names:
            document = opened.document("r1", kind_of(WORKLOAD_PROFILE_DOCUMENT, name))
            assert document is not None
            assert document["name"] == name
    found = CliRunner().invoke(assess, [store, "--json"], catch_exceptions=False)
    assert {ratio["workload"] for ratio in json_of(found)["ratios"]} == {"shop", "mail"}
