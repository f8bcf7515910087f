"""A clone run by fio: the contract of workloads, and that the accesses are those of the profile."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from workload_contract import Harness, WorkloadContract

from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client
from cephfit.core.units import KIB, MIB
from cephfit.core.values.demand import ClonePhase, WorkloadClone
from cephfit.lab.workloads import fio_clone
from cephfit.lab.workloads.fio_clone import FioClone, job_text, phase_seconds

pytestmark = pytest.mark.fio

NBYTES = 16 * MIB
MIX = (
    "rw=randrw",
    "rwmixread=50",
    f"bssplit={8 * KIB}/50:{24 * KIB}/50,{16 * KIB}/100",
    "percentage_random=100,100",
    f"blockalign={8 * KIB}",
    "norandommap=1",
    "iodepth=2",
)


def clone(accesses: float = 100, phases: int = 1) -> WorkloadClone:
    made = tuple(ClonePhase(f"phase{i + 1}", MIX, accesses, 3.0, 0.0, False) for i in range(phases))
    return WorkloadClone("db", made, 0.0, 0.0, NBYTES)


def on(device: Path) -> Client:
    return Client("c0", {}, FioClone(clone()).volume_nbytes, device)


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A filled volume."""
    device = tmp_path_factory.mktemp("clone") / "volume"
    device.write_bytes(bytes(FioClone(clone()).volume_nbytes))
    FioClone(clone()).prepare(on(device))
    yield device
    device.unlink()


def harness_on(device: Path) -> Harness:
    return Harness(
        open=lambda: FioClone(clone()),
        otherwise=FioClone(clone(accesses=200)),
        client=on(device),
        useless=Client("c0", {"pool": "vms", "rbdname": "i"}, 64 * MIB),
        least_nbytes=NBYTES,
        choices=lambda evidence: [line for line in evidence["job"].splitlines() if "randseed" in line],
        state=lambda: sorted(device.parent.iterdir()),
        take_away=lambda patch: patch.setenv("PATH", "/nonexistent"),
    )


class TestFioClone(WorkloadContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        device = tmp_path / "other"
        device.write_bytes(bytes(FioClone(clone()).volume_nbytes))
        return harness_on(device)

    @pytest.fixture
    def prepared(self, volume: Path) -> Harness:
        return harness_on(volume)


def issued(device: Path, log: Path, *, seed: int) -> list[tuple[str, int, int]]:
    """(op, offset, bytes) of the accesses of a run."""
    job = log.with_suffix(".fio")
    text = job_text(clone(), device, 1.0, seed=seed)
    job.write_text(text.replace("[global]", f"[global]\nwrite_iolog={log}\nnumber_ios=400"))
    subprocess.run(["fio", str(job)], check=True, capture_output=True, cwd=log.parent, timeout=120)
    found = []
    for line in log.read_text().splitlines():
        words = line.split()
        if words and words[-1].isdigit() and ("read" in words or "write" in words):
            found.append((words[-3], int(words[-2]), int(words[-1])))
    return found


def test_fio_issues_the_sizes_alignments_and_mix_of_the_clone(volume: Path, tmp_path: Path) -> None:
    accesses = issued(volume, tmp_path / "one.log", seed=1)
    assert len(accesses) > 100
    assert {nbytes for op, _, nbytes in accesses if op == "read"} == {8 * KIB, 24 * KIB}
    assert {nbytes for op, _, nbytes in accesses if op == "write"} == {16 * KIB}
    assert all(offset % (8 * KIB) == 0 for _, offset, _ in accesses)
    assert any(offset % (16 * KIB) for op, offset, _ in accesses if op == "write"), "not aligned to their own size"
    assert sum(op == "read" for op, _, _ in accesses) == pytest.approx(len(accesses) / 2, rel=0.25)
    assert max(offset + nbytes for _, offset, nbytes in accesses) <= NBYTES, "the label is not overwritten"


def test_the_seed_decides_where_accesses_go(volume: Path, tmp_path: Path) -> None:
    runs = [issued(volume, tmp_path / f"{i}.log", seed=seed)[:100] for i, seed in enumerate((5, 5, 0))]
    assert sorted(runs[0]) == sorted(runs[1])
    assert sorted(runs[0]) != sorted(runs[2])


def test_the_value_is_one_over_the_time_of_a_pass(volume: Path) -> None:
    workload = FioClone(clone(phases=2))
    value, evidence = workload.run(on(volume), 2.0, seed=1)
    each = evidence["seconds_per_access"]
    assert set(each) == {"phase1", "phase2"}
    assert value == pytest.approx(1 / (100 * each["phase1"] + 100 * each["phase2"]))


def test_a_flush_follows_every_n_writes_of_a_phase_without_reads(volume: Path, tmp_path: Path) -> None:
    writes = ClonePhase("phase1", ("rw=randwrite", "bs=4k", "iodepth=1", "fsync=4"), 100, 1.0, 0.0, False)
    text = job_text(replace(clone(), phases=(writes,)), volume, 1.0, seed=1)
    done = subprocess.run(
        ["fio", "--output-format=json", "-"],
        input=text,
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    (job,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    assert job["write"]["total_ios"] > 10
    assert job["sync"]["total_ios"] == pytest.approx(job["write"]["total_ios"] / 4, abs=2)


def test_run_time_is_divided_by_the_time_of_the_phases() -> None:
    phases = [
        ClonePhase(name, MIX, 1, seconds, 0.0, False) for name, seconds in (("a", 8.0), ("b", 2.0), ("c", 0.0))
    ]
    assert phase_seconds(phases, 20.0) == {"a": 16.0, "b": 4.0, "c": 1.0}


def test_a_phase_without_accesses_is_no_result(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = {
        "jobs": [
            {"jobname": "phase1", "error": 0, **{op: {"total_ios": 0, "runtime": 0} for op in ("read", "write")}}
        ]
    }
    monkeypatch.setattr(fio_clone, "_fio", lambda text, *, seconds: nothing)
    with pytest.raises(ClusterError, match="phase1 of the clone has no result"):
        FioClone(clone()).run(on(volume), 1.0, seed=1)
