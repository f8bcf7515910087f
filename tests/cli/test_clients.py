"""Many clients end to end on the simulated cluster: a sweep over clients, `map --clients`, `verify --clients`."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cephfit.cli.main import cephfit
from cephfit.core.errors import InputError
from cephfit.core.values.profile import Profile
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.targets.simulated_workload import seconds_of

SWEEP = """
schema_version: 1
name: growing
description: the default and a fast class, 1 to 4 clients
configurations:
  A: {}
  ssd: {pool: {crush_rule: ssd}}
measurement:
  sizes: [4K, 128K]
  patterns: [read, write, randread, randwrite]
  clients: 1
  loads:
    two: {clients: 2}
    four: {clients: 4}
    gentle: {clients: 2, rate_iops: 20}
    deep: {clients: 2, iodepth: 8}
  volume_size: 1G
  repeats: 4
  ramp_seconds: 0
  run_seconds: 1
  ioengine: libaio
  iodepth: 1
  direct: true
  cache: warm
  seed: 1
"""
PROFILE = {
    "schema_version": 1,
    "name": "mixed",
    "accesses": {"read": {"4K": 100, "128K": 20}, "write": {"4K": 60}},
    "random": {"read": 0.5, "write": 0.8},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the sweep, measured on a simulated cluster with 2 % of noise."""
    folder = tmp_path_factory.mktemp("clients")
    (folder / "s.yaml").write_text(SWEEP)
    (folder / "p.json").write_text(json.dumps(PROFILE))
    ran = CliRunner().invoke(
        cephfit,
        ["sweep", "run", str(folder / "s.yaml"), "--target", "sim", "--store", str(folder / "r.sqlite")],
        catch_exceptions=False,
    )
    assert ran.exit_code == 0, ran.output
    return folder


def invoked(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cephfit, list(arguments))


def mapped(folder: Path, *options: str) -> Any:
    arguments = ["map", str(folder / "p.json"), "--baselines", str(folder / "r.sqlite"), "--json", *options]
    result = invoked(folder, *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout[result.stdout.index("{") :])


def verified(folder: Path, *options: str) -> Any:
    arguments = ["verify", "--sweep", str(folder / "s.yaml"), "--store", str(folder / "r.sqlite")]
    arguments += ["--target", "sim", "--profile", str(folder / "p.json"), "--configurations", "ssd", "--json"]
    result = invoked(folder, *arguments, "--seconds", "1", "--repeats", "4", *options)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return json.loads(result.stdout[result.stdout.index("{") :])


def true_relative(n_clients: int) -> float:
    """Of ssd, the default = 100: the simulation's own rates."""
    own = {c.name: c for c in parse_sweep(SWEEP, file="s.yaml").configurations}
    profile = Profile.from_json(PROFILE, where="test")
    default, ssd = (seconds_of(profile, own[name], n_clients=n_clients) for name in ("A", "ssd"))
    return 100 * default / ssd


def ssd_of(document: Any) -> Any:
    return next(p for p in document["predictions"] if p["configuration"] == "ssd")


@pytest.mark.parametrize("n", [3, 6])
def test_a_number_that_was_not_measured_is_predicted_by_the_law(folder: Path, n: int) -> None:
    document = mapped(folder, "--clients", str(n))
    truth, found = true_relative(n), ssd_of(document)
    assert found["low"] <= truth <= found["high"]
    assert found["relative"] == pytest.approx(truth, rel=0.05 if n == 3 else 0.15)
    # The truth moves with the number, so that rates of another number would not do.
    assert abs(true_relative(1) - truth) > 0.05 * truth
    law = document["scaling_law"]
    assert (law["clients"], law["measured_clients"], law["extrapolated"]) == (n, [1, 2, 4], n == 6)
    assert any("EXTRAPOLATED" in note for note in document["notes"]) == (n == 6)
    assert len(law["laws"]) == 2 * 8


def test_a_measured_number_is_used_directly(folder: Path) -> None:
    by_clients, by_load = mapped(folder, "--clients", "4"), mapped(folder, "--load", "four")
    assert "scaling_law" not in by_clients
    assert by_clients["predictions"] == by_load["predictions"]


def test_the_law_is_fitted_to_loads_that_differ_in_clients_alone(folder: Path) -> None:
    assert mapped(folder, "--clients", "3", "--load", "two")["scaling_law"]["measured_clients"] == [1, 2, 4]
    one_alone = invoked(
        folder, "map", str(folder / "p.json"), "--baselines", str(folder / "r.sqlite"), "--clients", "3",
        "--load", "deep",
    )  # fmt: skip
    assert isinstance(one_alone.exception, InputError)
    assert "load deep was measured with 2 clients only" in str(one_alone.exception)


def test_a_learned_prediction_does_not_claim_the_error_of_the_law(folder: Path) -> None:
    lessons = Path(__file__).resolve().parents[2] / "benchmarks" / "data" / "evaluation-kept-volumes"
    for options, words in (((), "contain"), (("--learn-from", str(lessons)), "do not contain")):
        notes = mapped(folder, "--clients", "3", *options)["notes"]
        assert any(note.startswith(f"the intervals {words} the error of the law") for note in notes)


def test_a_prediction_by_the_law_does_not_replace_the_stored_one(folder: Path) -> None:
    mapped(folder)
    before = mapped(folder, "--no-save")
    mapped(folder, "--clients", "3")
    refused = invoked(
        folder, "map", str(folder / "p.json"), "--baselines", str(folder / "r.sqlite"), "--clients", "3", "--save"
    )
    assert refused.exit_code == 2 and "belong to no load" in refused.output
    assert mapped(folder, "--no-save") == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--clients", "0"), "0 is not in the range x>=1"),
        (("--clients", "some"), "is not a valid integer"),
        (("--clients", "3", "--load", "none-such"), "nothing was measured under a load called 'none-such'"),
    ],
)
def test_wrong_inputs_of_map(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    result = invoked(folder, "map", str(folder / "p.json"), "--baselines", str(folder / "r.sqlite"), *arguments)
    assert result.exit_code != 0
    assert words in result.output + str(result.exception)


def test_a_csv_file_has_no_loads_to_compare(folder: Path) -> None:
    file = folder / "rates.csv"
    file.write_text("configuration,size,pattern,client,run,iops\nA,4K,read,c0,0,100\n")
    result = invoked(folder, "map", str(folder / "p.json"), "--baselines", str(file), "--clients", "3")
    assert isinstance(result.exception, InputError)
    assert "CSV" in str(result.exception)


@pytest.mark.parametrize("n", [3, 4])
def test_a_verification_on_many_clients_agrees_with_the_prediction(folder: Path, n: int) -> None:
    document = verified(folder, "--clients", str(n))
    ssd = next(row for row in document["rows"] if row["configuration"] == "ssd")
    measured, predicted = ssd["measured"]["relative"], ssd["predicted"]
    assert measured == pytest.approx(true_relative(n), rel=0.04)
    assert predicted["low"] <= true_relative(n) <= predicted["high"]
    assert document["workload"] == f"mixed x {n}"
    assert ("Universal Scalability Law" if n == 3 else "load four") in document["note"]
    spread = document["clients"]["ssd"]
    assert spread["lowest"] < spread["median"] < spread["highest"]
    assert 0.99 < spread["fairness"] <= 1
    assert n * spread["lowest"] < sum(ssd["values"]) / 4 < n * spread["highest"]


def test_without_other_numbers_the_prediction_is_of_the_loads_own_with_a_note(folder: Path) -> None:
    document = verified(folder, "--clients", "5", "--load", "deep")
    assert "rates of 2 clients at once, as none were measured with 5" in document["note"]


def test_a_verification_on_several_clients_is_assessed_with_their_load(folder: Path) -> None:
    verified(folder, "--clients", "4")
    verified(folder, "--clients", "3")
    result = invoked(folder, "assess", str(folder / "r.sqlite"), "--json")
    assert result.exit_code == 0, result.output + repr(result.exception)
    document = json.loads(result.stdout[result.stdout.index("{") :])
    predicted = {
        row["workload"]: row["predicted"]
        for row in document["ratios"]
        if row["model"] == "time" and row["configuration"] == "ssd"
    }
    assert predicted["mixed x 4"] == pytest.approx(true_relative(4), rel=0.05)
    assert "mixed x 3" not in predicted
    assert any("ran on 3 clients at once, and no load has this number" in note for note in document["notes"])


def test_people_see_each_clients_rates(folder: Path) -> None:
    arguments = ["verify", "--sweep", str(folder / "s.yaml"), "--store", str(folder / "r.sqlite")]
    arguments += ["--target", "sim", "--profile", str(folder / "p.json"), "--configurations", "ssd"]
    result = invoked(folder, *arguments, "--seconds", "1", "--repeats", "4", "--clients", "4")
    assert result.exit_code == 0, result.output
    assert "The values are sums of 4 clients at once" in result.output
    assert "Jain's index, 1 where all clients are equal, 0.25" in result.output
    assert invoked(folder, *arguments, "--clients", "0").exit_code == 2


def test_traces_of_several_clients_need_a_folder(tmp_path: Path) -> None:
    argv = ["trace", "workload", "--target", "lab", "--clients", "2", "-o", str(tmp_path / "t")]
    result = CliRunner().invoke(cephfit, argv)
    assert isinstance(result.exception, InputError)
    assert "the traces of 2 clients need a folder" in str(result.exception)


def test_a_place_that_cannot_take_a_trace_is_refused_before_the_workload_is_prepared(tmp_path: Path) -> None:
    argv = ["trace", "workload", "--target", "lab:none", "--workload", "mail", "-o"]
    missing = CliRunner().invoke(cephfit, [*argv, str(tmp_path / "missing" / "t")])
    assert isinstance(missing.exception, InputError)
    assert "this folder does not exist" in str(missing.exception)
    (tmp_path / "t.blktrace.0").touch()
    taken = CliRunner().invoke(cephfit, [*argv, str(tmp_path / "t")])
    assert isinstance(taken.exception, InputError)
    assert "a trace exists here already" in str(taken.exception)
