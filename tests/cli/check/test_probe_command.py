"""`cephfit probe` on the simulated target, whose truth is known."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cephfit.cli.check.probe_command import command as probe
from cephfit.cli.sweep.sweep_commands import command as sweep
from cephfit.core.errors import CephfitError, InputError
from cephfit.core.values.measurement import CacheCondition
from cephfit.core.values.profile import Profile
from cephfit.lab.workloads.fio_clone import FioClone
from cephfit.operations.evaluation_set import read_store
from cephfit.operations.measuring.sweep_measurement import clone_trial
from cephfit.operations.measuring.target_choice import open_target
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.targets.simulated_workload import seconds_of

SWEEP = """
schema_version: 1
name: close
description: two configurations like the default, one that is far better, one that is far worse
configurations:
  A: {}
  blob: {ceph: {osd: {bluestore_max_blob_size_hdd: 512K}}}
  journaling: {image: {features: "layering,exclusive-lock,journaling"}}
  hybrid: {pool: {crush_rule: hybrid}}
  ssd: {pool: {crush_rule: ssd}}
measurement:
  {sizes: [4K, 128K], patterns: [randread, randwrite, read, write], clients: 1, volume_size: 16M, repeats: 3,
   ramp_seconds: 0.1, run_seconds: 0.5, ioengine: libaio, iodepth: 1, direct: true, cache: warm, seed: 1}
"""
READS = {"4K": 100, "128K": 10}


def json_of(result: Result) -> Any:
    """The document that a command printed; some versions of Click mix it with the progress before it."""
    return json.loads(result.stdout[result.stdout.index("{") :])


def profile(writes: int) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "name": "mixed",
        "accesses": {"read": READS, "write": {"4K": writes}},
        "random": {"read": 1.0, "write": 1.0},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep, its finished run on the simulated target, and profiles."""
    (tmp_path / "close.yaml").write_text(SWEEP)
    (tmp_path / "reads.json").write_text(json.dumps(profile(0)))
    (tmp_path / "writes.json").write_text(json.dumps({**profile(500), "name": "writes"}))
    arguments = ["run", str(tmp_path / "close.yaml"), "--target", "sim", "--store", str(tmp_path / "r.sqlite")]
    assert CliRunner().invoke(sweep, arguments, catch_exceptions=False).exit_code == 0
    return tmp_path


def probed(folder: Path, name: str, *options: str, target: str = "sim") -> Result:
    arguments = ["--sweep", str(folder / "close.yaml"), "--store", str(folder / "r.sqlite"), "--target", target]
    return CliRunner().invoke(
        probe, [str(folder / name), *arguments, "--seconds", "1", *options], catch_exceptions=False
    )


def test_a_close_answer_is_probed_and_comes_nearer_to_the_truth(folder: Path) -> None:
    """Reads: `ssd` and `hybrid` are equally fast, six times the default."""
    found = json_of(probed(folder, "reads.json", "--candidates", "3", "--json", target="sim:noise=0"))
    assert found["candidates"][0] == "A"
    assert set(found["candidates"]) >= {"A", "ssd", "hybrid"}
    assert "2 configurations may be the best" in found["reason"]
    known = {c.name: c for c in parse_sweep(SWEEP, file="close.yaml").configurations}
    work = Profile.from_json(profile(0))
    before, after = ({p["configuration"]: p for p in found[key]["predictions"]} for key in ("before", "after"))
    for name in ("ssd", "hybrid"):
        truth = 100 * seconds_of(work, known["A"]) / seconds_of(work, known[name])
        assert abs(after[name]["relative"] - truth) < abs(before[name]["relative"] - truth)
        assert after[name]["low"] > before[name]["low"]
        assert after[name]["high"] < before[name]["high"]
    assert before["blob"] == after["blob"], "what was not probed keeps the prediction"
    assert found["after"]["model"] == "time+probe"
    assert found["minutes"] > 0


def test_its_result_is_stored_and_a_second_probe_runs_nothing(folder: Path) -> None:
    first = probed(folder, "reads.json", "--json")
    with Store.open(folder / "r.sqlite") as store:
        run = store.runs()[0]
        samples = store.workload_samples(run.run_id)
        assert store.document(run.run_id, "probe:mixed") == json_of(first)
    assert {name for name, _ in samples} == {"probe:mixed"}
    assert {s.metric for _, s in samples} == {"passes/s"}
    n_candidates = len(json_of(first)["candidates"])
    assert len(samples) == 3 * n_candidates
    again = probed(folder, "reads.json", "--json")
    assert json_of(again) == json_of(first)
    with Store.open(folder / "r.sqlite") as store:
        assert store.workload_samples(run.run_id) == samples


def test_a_clone_is_not_assessed_as_a_real_workload(folder: Path) -> None:
    probed(folder, "reads.json")
    with Store.open(folder / "r.sqlite") as store:
        assert store.workload_samples(store.runs()[0].run_id)
        found = read_store(store)
    assert not found.workloads
    assert not found.refused


def test_a_clear_answer_needs_no_probe_and_opens_no_target(folder: Path) -> None:
    """Writes: `ssd` is far better than all others, and journaling twice as slow as the default."""
    result = probed(folder, "writes.json", target="local:/nonexistent/folder")
    assert result.exit_code == 0
    assert "No probe is needed: ssd is the best" in result.output
    document = json_of(probed(folder, "writes.json", "--json", target="local:/nonexistent/folder"))
    assert document["candidates"] == []
    assert document["before"]["best"] == "ssd"
    with Store.open(folder / "r.sqlite") as store:
        assert not store.workload_samples(store.runs()[0].run_id)


def test_before_and_after_are_shown_next_to_each_other(folder: Path) -> None:
    output = probed(folder, "reads.json").stdout
    rows = {line.split()[0]: line for line in output.splitlines() if line.strip()}
    assert rows["ssd"].count("(") == 3, "prediction, clone and combination, each with its interval"
    assert "minutes" in output
    assert "Best before the probe:" in output


@pytest.mark.parametrize("target", ["local:/nonexistent/folder", "nonsense"])
def test_a_needed_probe_opens_the_target(folder: Path, target: str) -> None:
    with pytest.raises(CephfitError):
        probed(folder, "reads.json", target=target)


def test_on_a_device_the_clone_is_a_job_of_fio(tmp_path: Path) -> None:
    (tmp_path / "volume").write_bytes(bytes(1 << 20))
    target = open_target(f"local:{tmp_path / 'volume'}", for_change=False)
    trial = clone_trial(
        target,
        Profile.from_json(profile(100)),
        nbytes=100 << 20,
        repeats=2,
        seconds=5.0,
        seed=1,
        cache=CacheCondition.COLD,
    )
    assert isinstance(trial.workload, FioClone)
    assert (trial.workload.name, trial.workload.metric) == ("probe:mixed", "passes/s")
    assert trial.volume_nbytes == 101 << 20, "the used part, and the label"


def test_guests_cannot_run_a_clone() -> None:
    class Guests:
        name = "openstack:cloud"

        def run_guest_jobs(self, clients: object, scripts: object, *, seconds: float) -> None: ...

    with pytest.raises(InputError, match="not in guests"):
        clone_trial(
            Guests(),  # type: ignore[arg-type]
            Profile.from_json(profile(1)),
            nbytes=None,
            repeats=2,
            seconds=5.0,
            seed=1,
            cache=CacheCondition.COLD,
        )


def test_a_wrong_size_is_refused_before_the_store_is_read(tmp_path: Path) -> None:
    (tmp_path / "reads.json").write_text(json.dumps(profile(0)))
    with pytest.raises(InputError, match="'big' is not a size") as error:
        probed(tmp_path, "reads.json", "--size", "big")
    assert error.value.where == "--size"
