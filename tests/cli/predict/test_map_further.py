"""`cephfit map --next`, `--combine` and `--with-run` on a simulated cluster, whose truth is known."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cephfit.cli.main import cephfit
from cephfit.core.errors import InputError
from cephfit.results.store.sample_store import Store

SWEEP = """\
schema_version: 1
name: close
accept_risk: [size]
configurations:
  one-copy: {pool: {size: 1}}
  blob-512k: {ceph: {osd: {bluestore_max_blob_size_hdd: 512K}}}
  blob-256k: {ceph: {osd: {bluestore_max_blob_size_hdd: 256K}}}
measurement: {clients: 1, volume_size: 32M, repeats: 2, run_seconds: 1, seed: 7}
"""
TARGET = "sim:noise=0.06"
CSV = Path(__file__).resolve().parents[3] / "docs" / "examples"


def call(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cephfit, list(arguments), catch_exceptions=True)
    if code == 0:
        assert result.exit_code == 0, (result.output, result.exception)
    return result


def mapped(store: Path, *arguments: str, profile: str = "example:postmark") -> Any:
    return json.loads(call("map", profile, "--baselines", str(store), "--json", *arguments).stdout)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("close")
    (folder / "close.yaml").write_text(SWEEP)
    call("sweep", "run", str(folder / "close.yaml"), "--target", TARGET, "--store", str(folder / "s.sqlite"))
    return folder / "s.sqlite"


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled sweep with a pool on SSDs."""
    path = tmp_path_factory.mktemp("quick") / "s.sqlite"
    call("sweep", "run", "quick", "--target", "sim", "--store", str(path))
    return path


def newest(store: Path) -> str:
    with Store.open(store) as opened:
        return opened.run().run_id


def test_next_names_the_measurement_its_time_and_its_effect(store: Path) -> None:
    document = mapped(store, "--next")
    assert document["choice"] in ("blob-512k", "blob-256k")
    assert document["sentence"].startswith("Next: a probe: run a clone of the workload on A, blob-")
    assert document["next"]["wrong"] < document["wrong"]
    assert document["next"]["minutes"] == pytest.approx(document["next"]["configurations"].__len__() * 3 * 33 / 60)
    assert document["commands"][0].startswith("cephfit probe example:postmark --sweep")
    rounds = [row for row in document["candidates"] if row["kind"] == "repeat"]
    assert rounds
    assert all(row["cell"] and 0 < row["minutes"] < 2 for row in rounds)
    text = call("map", "example:postmark", "--baselines", str(store), "--next").stdout
    assert text.splitlines()[0] == document["sentence"]
    with Store.open(store) as opened:
        assert opened.document(newest(store), "predictions") is None, "nothing is saved"


def test_a_clear_answer_needs_no_measurement(tmp_path: Path) -> None:
    sweep = SWEEP.replace("  blob-256k: {ceph: {osd: {bluestore_max_blob_size_hdd: 256K}}}\n", "")
    (tmp_path / "clear.yaml").write_text(sweep.replace("blob-512k: {ceph", "ssd: {pool: {crush_rule: ssd}, ceph"))
    there = tmp_path / "s.sqlite"
    call("sweep", "run", str(tmp_path / "clear.yaml"), "--target", "sim", "--store", str(there))
    document = mapped(there, "--next", profile="example:pgbench")
    assert document["next"] is None
    assert document["sentence"].startswith("Nothing to measure: ssd is the best")
    assert document["commands"] == []


def test_the_written_round_runs_and_joins_the_first_run(tmp_path: Path) -> None:
    """One cell carries the workload, and there is no probe on a local folder; only rounds are left."""
    from cephfit.cli.predict.map_next import _sweep
    from cephfit.cli.predict.map_prediction import MeasuredRun, baselines_with
    from cephfit.core.profile_files import read_profile
    from cephfit.core.values.cells import Cell
    from cephfit.mapper.decisions.next_measurement import Candidate, Kind

    (tmp_path / "close.yaml").write_text(SWEEP)
    there = tmp_path / "s.sqlite"
    call("sweep", "run", str(tmp_path / "close.yaml"), "--target", TARGET, "--store", str(there))
    first = newest(there)
    run = MeasuredRun.of(str(there), first)
    assert run is not None
    assert run.target == f"{TARGET},seed=2", "with the same seed the noise would be the same again"
    assert run.can_probe
    cell = Cell.parse("1M-write")
    candidate = Candidate(Kind.REPEAT, ("A", "blob-512k"), cell, 0.1, 0.1, 0.1)
    sweep = _sweep(candidate, run, "", read_profile(Path("example:postmark")))
    assert sweep is not None
    (tmp_path / "next.yaml").write_text(sweep.text)
    call("sweep", "run", str(tmp_path / "next.yaml"), "--target", run.target, "--store", str(there))
    second = newest(there)
    joined = baselines_with(str(there), first, [second], "")
    assert [len(joined.of(name, cell).iops) for name in ("A", "blob-512k", "blob-256k")] == [3, 3, 2]
    assert joined.of("A", cell).rounds == (0, 1, 2)
    assert len(set(joined.of("A", cell).iops)) == 3
    assert len(joined.of("A", Cell.parse("4K-write")).iops) == 2
    document = mapped(there, "--run", first, "--with-run", second)
    assert second in document["baselines"]
    alone = mapped(there, "--run", first)
    rates = {
        d["baselines"]: {p["configuration"]: p["relative"] for p in d["predictions"]} for d in (document, alone)
    }
    assert len({r["blob-512k"] for r in rates.values()}) == 2, "the new round counts"
    with pytest.raises(InputError, match="given twice"):
        baselines_with(str(there), first, [first], "")


def test_runs_of_other_clusters_or_settings_are_not_joined(store: Path, tmp_path: Path) -> None:
    from cephfit.cli.predict.map_prediction import baselines_with

    first = newest(store)
    other = tmp_path / "other.yaml"
    other.write_text(SWEEP.replace("256K", "128K").replace("name: close", "name: other"))
    copy = tmp_path / "s.sqlite"
    copy.write_bytes(store.read_bytes())
    call("sweep", "run", str(other), "--target", TARGET, "--store", str(copy))
    with pytest.raises(InputError, match="blob-256k has other settings"):
        baselines_with(str(copy), first, [newest(copy)], "")
    other.write_text(SWEEP)
    call("sweep", "run", str(other), "--target", f"local:{tmp_path}", "--store", str(copy), code=2)
    with pytest.raises(InputError, match="a CSV file has no further runs"):
        baselines_with(str(CSV / "ranks-differ.csv"), None, [first], "")


def test_the_written_combinations_run_and_the_range_contains_the_truth(store: Path, tmp_path: Path) -> None:
    document = mapped(store, "--combine", "-o", str(tmp_path / "next.yaml"))
    assert document["file"] == str(tmp_path / "next.yaml")
    assert [c["configurations"] for c in document["conflicts"]] == [["blob-512k", "blob-256k"]]
    assert "bluestore_max_blob_size_hdd = 512K and 256K" in document["conflicts"][0]["reason"]
    measured = next(row for row in document["combinations"] if row["measured"])
    names = measured["configurations"]
    assert "one-copy" in names
    assert (
        f"interval {measured['pessimistic_low']:.0f} to {measured['optimistic_high']:.0f}" in document["sentence"]
    )

    plan = json.loads(call("sweep", "plan", str(tmp_path / "next.yaml"), "--target", "sim", "--json").stdout)
    together = ".".join(names)
    assert {"A", *names, together} <= {row["name"] for row in plan["configurations"]}, (
        "the single ones are controls"
    )
    truth = tmp_path / "truth.sqlite"
    call("sweep", "run", str(tmp_path / "next.yaml"), "--target", "sim:noise=0", "--store", str(truth))
    found = {p["configuration"]: p["relative"] for p in mapped(truth)["predictions"]}
    assert measured["pessimistic_low"] <= found[together] <= measured["optimistic_high"]
    assert found[together] > 100
    text = (tmp_path / "next.yaml").read_text()
    assert "independent effects" in text
    assert "95 % interval" in text


def test_without_a_file_the_output_is_the_sweep_file(store: Path, tmp_path: Path) -> None:
    text = call("map", "example:postmark", "--baselines", str(store), "--combine").stdout
    assert text.startswith("# Worth combining: ")
    (tmp_path / "n.yaml").write_text(text)
    call("sweep", "plan", str(tmp_path / "n.yaml"), "--target", "sim")


def test_one_improvement_is_not_combined(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(
        "schema_version: 1\nname: one\nconfigurations: {ssd: {pool: {crush_rule: ssd}}}\n"
        "measurement: {clients: 1, volume_size: 32M, repeats: 2, run_seconds: 1, seed: 7}\n"
    )
    there = tmp_path / "s.sqlite"
    call("sweep", "run", str(tmp_path / "one.yaml"), "--target", "sim", "--store", str(there))
    document = mapped(there, "--combine", "-o", str(tmp_path / "n.yaml"))
    assert document["sentence"] == "Nothing to combine: only ssd is likely better than the default"
    assert document["sweep"] is None
    assert not (tmp_path / "n.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--next", "--combine"], "two questions"),
        (["--next", "--save"], "nothing is saved"),
        (["-o", "n.yaml"], "-o writes a sweep file"),
    ],
)
def test_options_that_contradict_each_other_are_refused(store: Path, arguments: list[str], message: str) -> None:
    result = call("map", "example:postmark", "--baselines", str(store), *arguments, code=2)
    assert result.exit_code == 2
    assert message in result.output


def test_a_csv_has_no_settings_to_combine_but_a_next_measurement() -> None:
    arguments = ("map", str(CSV / "half-and-half.json"), "--baselines", str(CSV / "ranks-differ.csv"))
    refused = call(*arguments, "--combine", code=2)
    assert isinstance(refused.exception, InputError)
    assert "does not contain the settings" in str(refused.exception)
    document = json.loads(call(*arguments, "--next", "--json").stdout)
    assert document["commands"] == []
    assert all(row["minutes"] is None and row["kind"] != "probe" for row in document["candidates"])


def test_the_commands_are_those_of_the_objective(quick: Path) -> None:
    """The fastest pool is the dearest one: it is not what `--objective cost` recommends."""
    prices = ("--objective", "cost", "--price", "hdd=1", "--price", "ssd=8", "--placement", "A=hdd:2")
    assert mapped(quick, profile="example:pgbench")["use"]["apply"].startswith("cephfit apply ssd ")
    cheapest = mapped(quick, *prices, profile="example:pgbench")
    assert (cheapest["objectives"][0]["best"], cheapest["use"]) == ("A", None)
    text = call("map", "example:pgbench", "--baselines", str(quick), *prices).stdout
    assert "Best by cost: A" in text and "cephfit apply" not in text
    front = mapped(quick, *prices, "--objective", "throughput", profile="example:pgbench")
    assert {"no-deferred", "ssd"} <= set(front["pareto_front"]) and front["use"] is None
    text = call("map", "example:pgbench", "--baselines", str(quick), *prices, "--objective", "throughput").stdout
    used = [line.split()[2] for line in text.splitlines() if line.startswith("To use ")]
    assert used == [name for name in front["pareto_front"] if not name.startswith("A")]


def test_a_weighted_time_or_one_of_reads_alone_is_not_called_the_workloads(quick: Path, tmp_path: Path) -> None:
    """I/O was outstanding for a third of the time, whatever the objective counts."""
    columns = ["pattern", "nbytes", "is_aligned", "depth", "is_sync", "accesses", "waiting_seconds"]
    rows = [[p, 4096.0, True, 1.0, None, 500, 5.0] for p in ("randread", "randwrite")]
    document = {
        **json.loads((CSV / "profiles" / "pgbench.json").read_text()),
        "name": "third",
        "schema_version": 2,
        "demands": {"columns": columns, "rows": rows},
        "idle_seconds": 20.0,
    }
    profile = tmp_path / "third.json"
    profile.write_text(json.dumps(document))
    for options in (("--reads-matter", "3"), ("--objective", "read")):
        notes = mapped(quick, "--no-save", *options, profile=str(profile))["objectives"][0]["notes"]
        assert not any("I/O was outstanding" in note for note in notes)
    notes = mapped(quick, "--no-save", "--objective", "throughput", profile=str(profile))["objectives"][0]["notes"]
    assert any("I/O was outstanding 33.3 % of the workload's time" in note for note in notes)
