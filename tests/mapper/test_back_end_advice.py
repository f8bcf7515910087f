"""The check of the adviser's choice, on evaluation folders with a known truth."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.back_end_advice import Between, cases_of, folders_of, report, tables
from benchmarks.back_end_runs import brief_sweep, chosen, is_too_late
from cephfit.core.values.cells import Op, Pattern
from cephfit.core.values.demand import Demand
from cephfit.core.values.profile import Profile
from cephfit.sweep.declaration.sweep_file import read_sweep

WOBBLE = (0.99, 1.0, 1.01)
BUSY, IDLE = 8.0, 2.0


def profile() -> Profile:
    """Writes of 4K that take 8 of 10 seconds."""
    accesses = {op: dict.fromkeys(("4K", "32K", "128K", "1M", "32M"), 0) for op in Op}
    accesses[Op.WRITE]["4K"] = 800
    demand = Demand(Pattern.RANDWRITE, 4096, True, 1.0, True, 800, BUSY)
    return Profile("w", accesses, {Op.READ: 0.0, Op.WRITE: 1.0}, demands=(demand,), idle_seconds=IDLE)


def write(folder: Path, rates: Mapping[str, float], values: Mapping[str, float]) -> None:
    """Write an evaluation folder: rates of 4K random writes and values of the workload, by configuration."""
    (folder / "profiles").mkdir(parents=True)
    (folder / "profiles" / "w.json").write_text(json.dumps(profile().to_json()))
    baselines = [
        f"{name},4K,randwrite,all,{i},{rate * wobble:.3f},,1,1,"
        for name, rate in rates.items()
        for i, wobble in enumerate(WOBBLE)
    ]
    heads = "configuration,size,pattern,client,run,iops,load,iodepth,clients,sync"
    (folder / "baselines.csv").write_text("\n".join([heads, *baselines]) + "\n")
    measured = [
        f"w,op/s,{name},{i},,{value * wobble:.3f}"
        for name, value in values.items()
        for i, wobble in enumerate(WOBBLE)
    ]
    heads = "workload,metric,configuration,round,volume,value"
    (folder / "measured.csv").write_text("\n".join([heads, *measured]) + "\n")


def between(folder: Path) -> Between:
    found = Between.of("w", cases_of(folders_of(folder))["w"])
    assert found is not None
    return found


def test_a_right_advice_has_no_regret_and_exact_ratios(tmp_path: Path) -> None:
    """100/s take 8 of 10 s: at 200/s the run takes 4 + 2 s, at 50/s 16 + 2 s."""
    write(tmp_path / "rbd", {"A": 50.0, "B": 100.0}, {"A": 10.0, "B": 18.0})
    write(tmp_path / "nfs", {"A": 200.0}, {"A": 18.0 * 10 / 6})
    write(tmp_path / "swift", {"A": 50.0}, {"A": 18.0 * 10 / 18})
    found = between(tmp_path)
    assert (found.first, found.regret_pct, found.spearman) == ("nfs", 0.0, pytest.approx(1.0))
    assert found.as_fast == ("rbd",), "that serves half as much, which is within the error; swift serves a quarter"
    for target, ratio in (("nfs", 10 / 6), ("swift", 10 / 18)):
        assert found.predicted[target].value == pytest.approx(ratio, rel=1e-6)
        assert found.measured[target] == pytest.approx(ratio, rel=1e-3)
        assert found.predicted[target].low < ratio < found.predicted[target].high
    text = "\n".join(report(folders_of(tmp_path)))
    assert "| w | `B` | " in text, "the advised configuration of rbd"
    assert "fastest target named for 1 of 1 workloads, mean regret 0.0 %" in text


def test_a_wrong_advice_has_its_regret_and_is_outside(tmp_path: Path) -> None:
    """nfs serves four times the rate, but the workload runs at 60 % of rbd's speed there."""
    write(tmp_path / "rbd", {"A": 100.0}, {"A": 10.0})
    write(tmp_path / "nfs", {"A": 400.0}, {"A": 6.0})
    found = between(tmp_path)
    assert found.first == "nfs"
    assert not found.is_best_named
    assert found.regret_pct == pytest.approx(40.0)
    assert found.predicted["nfs"].low > found.measured["nfs"]
    assert "0 of 1 intervals contain the measured ratio" in "\n".join(report(folders_of(tmp_path)))


def test_one_target_says_that_the_order_cannot_be_checked(tmp_path: Path) -> None:
    write(tmp_path, {"A": 100.0, "B": 300.0}, {"A": 10.0, "B": 25.0})
    text = "\n".join(report(folders_of(tmp_path)))
    assert "No workload ran on two targets" in text
    left = "\n".join(report(folders_of(tmp_path), without=("B",)))
    assert "`B`" in text
    assert "`B`" not in left


def test_the_tables_have_a_column_for_each_back_end_and_a_row_for_each_kind_of_access(tmp_path: Path) -> None:
    for name, rate in (("swift", 20.0), ("rbd", 100.0)):
        write(tmp_path / name, {"A": rate}, {"A": rate / 10})
    more = tmp_path / "swift" / "baselines.csv"
    deep_reads = "".join(f"A,32K,randread,all,{i},{1500 + i},deep,32,1,\n" for i in range(3))
    more.write_text(more.read_text() + deep_reads)
    rates, values = "\n".join(tables(folders_of(tmp_path))).split("\n\n")
    assert rates.splitlines()[0] == "| cell | RBD, 2 copies | Swift |"
    small, deep = rates.splitlines()[2:]
    kind, rbd, swift, *_ = small.strip("| ").split(" | ")
    assert (kind, rbd.split()[0], swift.split()[0]) == ("4K random write", "100", "20")
    low, high = (float(word.strip("()")) for word in swift.split()[1::2])
    assert 19 < low < 20 < high < 21, "three repeats within 1 %"
    assert deep.startswith("| 32K random read, 32 outstanding |  | 1,501 ("), "not measured on RBD"
    assert values.splitlines()[2] == "| w | 9.9, 10, 10.1 | 1.98, 2, 2.02 |"


def test_a_brief_sweep_has_the_defaults_and_all_cells(tmp_path: Path) -> None:
    sweep = read_sweep(brief_sweep(tmp_path))
    assert [c.name for c in sweep.configurations] == ["A"]
    assert (len(sweep.measurement.cells), sweep.measurement.repeats) == (20, 2)
    assert {load.name for load in sweep.measurement.loads} == {"unaligned", "depth-32", "fsync"}


def test_targets_are_chosen_by_name_or_given() -> None:
    lab = {"rbd": "lab:x", "swift": "swift:lab:x", "nfs": "nfs:lab:x"}
    assert list(chosen(lab, ["nfs", "rbd"])) == ["rbd", "nfs"], "in the lab's order, so that RBD is recorded first"
    assert chosen(lab, []) == lab
    assert chosen(lab, ["own=nfs://h/e"]) == {"own": "nfs://h/e"}
    with pytest.raises(SystemExit, match="no gluster: it has rbd, swift, nfs"):
        chosen(lab, ["gluster"])


def test_a_target_that_would_end_too_late_is_not_begun() -> None:
    assert not is_too_late([], 0.0, 60.0), "the first one is always measured"
    assert not is_too_late([20.0, 30.0], 50.0, 80.0)
    assert is_too_late([20.0, 30.0], 50.0, 79.0)
