"""One sweep on several targets at once: separate runs and failures, and the comparison."""

import csv
import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from example_run import example_run, example_samples

from cephfit.ceph.admin.answers import RefusedError
from cephfit.cli.output import table_text
from cephfit.cli.reports.compare_command import _of_which_rounds
from cephfit.cli.reports.compare_command import command as compare
from cephfit.cli.reports.compare_output import _lines, _number
from cephfit.cli.sweep import concurrent_targets, sweep_text
from cephfit.cli.sweep.sweep_commands import command as sweep
from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import SIZE_BINS, Cell, Op
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import TARGETS_DOCUMENT, State
from cephfit.results import open_baselines
from cephfit.results.report.run_notes import ROUNDS_OF_WORKLOADS
from cephfit.results.statistics import comparison
from cephfit.results.statistics.comparison import rows_of, served_of, with_verdicts
from cephfit.results.statistics.summary_statistics import Spread
from cephfit.results.statistics.workload_rate import workload_rates
from cephfit.results.store.sample_store import Store

SWEEP = """\
schema_version: 1
name: two
configurations:
  ssd: {pool: {crush_rule: ssd}}
measurement:
  sizes: [4K]
  patterns: [randread, write]
  clients: 2
  volume_size: 4M
  repeats: 3
  run_seconds: 1
  seed: 7
  loads: {deep: {iodepth: 16}}
"""
CALM, NOISY = "sim", "sim:noise=0.08,seed=9"


def cephfit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "two.yaml").write_text(SWEEP)
    return subprocess.run(
        [sys.executable, "-m", "cephfit.cli.main", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def run_on(folder: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    named = [word for target in targets for word in ("--target", target)]
    return cephfit(folder, "sweep", "run", "two.yaml", *named, "--store", "s.sqlite", "--json")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("several")
    done = run_on(folder, CALM, NOISY)
    assert done.returncode == 0, done.stderr
    assert [run["target"] for run in json.loads(done.stdout)["runs"]] == [CALM, NOISY]
    yield folder


def test_each_target_has_a_separate_run_equal_to_a_single_measurement(measured: Path, tmp_path: Path) -> None:
    with Store.open(measured / "s.sqlite") as store:
        runs = {run.target: run for run in store.runs()}
        assert set(runs) == {CALM, NOISY}
        assert all(run.finished for run in runs.values())
        concurrent = {s.key: s.metrics for s in store.samples(runs[NOISY].run_id)}
        assert all(s.state is State.OK for s in store.samples(runs[CALM].run_id))
    assert run_on(tmp_path, NOISY).returncode == 0
    with Store.open(tmp_path / "s.sqlite") as store:
        alone = {s.key: s.metrics for s in store.samples(store.run().run_id)}
    assert concurrent == alone


def test_a_target_that_fails_does_not_disturb_the_other(tmp_path: Path) -> None:
    done = run_on(tmp_path, "lab:no-such-lab", CALM)
    assert done.returncode == 2
    assert "no-such-lab" in done.stderr
    document = json.loads(done.stdout)
    assert [run["target"] for run in document["runs"]] == [CALM]
    assert [error["target"] for error in document["errors"]] == ["lab:no-such-lab"]
    with Store.open(tmp_path / "s.sqlite") as store:
        assert store.run().finished


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.slow
def test_samples_are_kept_and_the_same_command_continues(tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "two.yaml").write_text(SWEEP)
    slow = ["sim:pace=0.3", "sim:pace=0.3,seed=4"]
    command = [sys.executable, "-m", "cephfit.cli.main", "sweep", "run", "two.yaml", "--store", "s.sqlite"]
    command += [word for target in slow for word in ("--target", target)]
    first = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60

    def kept() -> dict[str, int]:
        if not (tmp_path / "s.sqlite").exists():
            return {}
        with Store.open(tmp_path / "s.sqlite", create=True) as store:
            return {run.target: len(store.samples(run.run_id)) for run in store.runs()}

    while not (len(kept()) == 2 and all(kept().values())):
        assert time.monotonic() < deadline and first.poll() is None
        time.sleep(0.05)
    children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    os.kill(first.pid, how)
    _, errors = first.communicate(timeout=60)
    if how is signal.SIGINT:
        assert first.returncode == 130
        assert "run the same command to continue from here" in errors
    while any(is_alive(pid) for pid in children):
        assert time.monotonic() < deadline, "the processes of the targets go with the first one"
        time.sleep(0.05)
    before = kept()
    assert all(0 < n < 3 * 2 * 2 * 2 * 2 for n in before.values()), "it was killed in the middle"
    done = run_on(tmp_path, *slow)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("continuing run") == 2
    with Store.open(tmp_path / "s.sqlite") as store:
        assert len(store.runs()) == 2
        for run in store.runs():
            keys = [s.key for s in store.samples(run.run_id)]
            assert len(keys) == len(set(keys)) == 3 * 2 * 2 * 2 * 2, (
                "rounds, configurations, loads, cells, clients"
            )


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_target_twice_is_refused(tmp_path: Path) -> None:
    done = run_on(tmp_path, CALM, CALM)
    assert done.returncode == 2
    assert "given twice" in done.stderr
    assert not (tmp_path / "s.sqlite").exists()


def compared(folder: Path, *arguments: str) -> str:
    """The output of `cephfit compare`, without a separate process."""
    result = CliRunner().invoke(compare, ["--store", str(folder / "s.sqlite"), *arguments], catch_exceptions=False)
    return result.stdout


def test_every_cell_is_compared_with_the_first_target(measured: Path) -> None:
    document = json.loads(compared(measured, "--json"))
    assert {run["target"] for run in document["runs"]} == {CALM, NOISY}
    assert len(document["rows"]) == 2 * 2
    for row in document["rows"]:
        first, second = row["there"]
        assert first["ratio"] is None
        assert second["ratio"]["mean"] == pytest.approx(second["iops"]["mean"] / first["iops"]["mean"])
        assert second["ratio"]["low"] < second["ratio"]["mean"] < second["ratio"]["high"]
    text = compared(measured, "--load", "deep")
    assert "4K-randread" in text
    assert "simulated figures, not from a disk" in text
    with pytest.raises(InputError, match="shallow"):
        compared(measured, "--load", "shallow")
    with pytest.raises(InputError, match="one run to compare"):
        compared(measured, "--run", document["runs"][0]["run"])


def test_compare_shows_intervals(measured: Path) -> None:
    text = compared(measured)
    assert "Intervals are 95 % intervals, each by itself." in text
    document = json.loads(compared(measured, "--json"))
    assert (document["confidence"], document["joint"]) == (0.95, False)
    assert [(run["simulated"], run["finished"]) for run in document["runs"]] == [(True, True)] * 2


@pytest.mark.parametrize("targets", [[CALM, NOISY], [NOISY, CALM]])
def test_the_first_target_of_the_command_is_the_reference(
    measured: Path, tmp_path: Path, targets: list[str]
) -> None:
    """Independent of which began first."""
    store = tmp_path / "s.sqlite"
    with Store.open(measured / "s.sqlite") as old, Store.open(store, create=True) as new:
        for run in old.runs():
            new.add_run(run)
            for sample in old.samples(run.run_id):
                new.add_samples(run.run_id, [sample], fio_json=None)
            new.put_document(
                run.run_id, TARGETS_DOCUMENT, {"number": targets.index(run.target), "targets": targets}
            )
        assert old.document(old.run().run_id, TARGETS_DOCUMENT)["targets"] == [CALM, NOISY]  # type: ignore[index]
    assert [run["target"] for run in json.loads(compared(tmp_path, "--json"))["runs"]] == targets


def test_compare_as_a_table(measured: Path, tmp_path: Path) -> None:
    document = json.loads(compared(measured, "-o", str(tmp_path / "c.csv"), "--json"))
    with (tmp_path / "c.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * len(document["rows"])
    for row, (first, second) in zip(document["rows"], zip(lines[::2], lines[1::2], strict=True), strict=True):
        assert f"{first['size']}-{first['pattern']}" == row["cell"]
        assert (first["target"], second["target"], second["simulated"]) == (CALM, NOISY, "true")
        assert float(second["ratio_low"]) == row["there"][1]["ratio"]["low"]
        assert float(first["mib_per_s"]) == pytest.approx(row["there"][0]["iops"]["mean"] * 4 / 1024)
        assert first["ratio"] == "" and second["differs"] == str(row["there"][1]["differs"]).lower()
    assert compared(measured, "-o", "-").startswith("load,configuration,size,pattern,run,target")


@pytest.fixture
def workload(tmp_path: Path) -> tuple[Profile, str]:
    """Small accesses, and one of a cell that was not measured."""
    none = {size.name: 0 for size in SIZE_BINS}
    accesses = {Op.READ: {**none, "4K": 30_000_000}, Op.WRITE: {**none, "4K": 10_000_000, "32M": 1}}
    profile = Profile("shop", accesses, {Op.READ: 1.0, Op.WRITE: 0.0})
    path = tmp_path / "shop.json"
    path.write_text(profile.dumps())
    return profile, str(path)


def test_compare_shows_the_rate_of_a_workload_on_each_target(
    measured: Path, workload: tuple[Profile, str], tmp_path: Path
) -> None:
    """With the rates that `report` gives, weighted by their time."""
    profile, file = workload
    document = json.loads(compared(measured, "--profile", file, "--json"))
    runs = [run["run"] for run in document["runs"]]
    rates = [workload_rates(profile, open_baselines(measured / "s.sqlite", run)) for run in runs]
    assert [(one["workload"], one["configuration"]) for one in document["workloads"]] == [
        ("shop", "A"),
        ("shop", "ssd"),
    ]
    for one in document["workloads"]:
        first, second = one["there"]
        for there, of_target in zip((first, second), rates, strict=True):
            rate = of_target[one["configuration"]].accesses_per_s
            assert rate.interval is not None
            ends = {"low": rate.interval.low, "high": rate.interval.high}
            assert there["accesses_per_s"] == {"mean": rate.mean, **ends}
            assert (there["rounds"], there["without"]) == (3, ["32M-write"])
        ratio = second["ratio"]
        assert ratio["mean"] == pytest.approx(second["accesses_per_s"]["mean"] / first["accesses_per_s"]["mean"])
        assert ratio["low"] < ratio["mean"] < ratio["high"]
        assert second["differs"] is not (ratio["low"] <= 1 <= ratio["high"])
    text = compared(measured, "--profile", file)
    assert "Workload shop: accesses of its mix per second" in text
    assert "shop on target 2: without 32M-write, which was not measured there" in text
    compared(measured, "--profile", file, "-o", str(tmp_path / "c.csv"))
    with (tmp_path / "c.csv").open() as table:
        of_workload = [line for line in csv.DictReader(table) if line["workload"]]
    assert [(line["configuration"], line["size"], line["rate_without"]) for line in of_workload] == [
        (name, "", "32M-write") for name in ("A", "A", "ssd", "ssd")
    ]
    assert float(of_workload[1]["ratio"]) == document["workloads"][0]["there"][1]["ratio"]["mean"]
    assert float(of_workload[0]["mib_per_s"]) == pytest.approx(rates[0]["A"].nbytes_per_s / 2**20)


def test_a_target_without_a_rate_of_the_workload_names_missing_cells() -> None:
    none = {size.name: 0 for size in SIZE_BINS}
    profile = Profile("w", {Op.READ: {**none, "4K": 9, "1M": 9}, Op.WRITE: none}, {Op.READ: 0.0, Op.WRITE: 0.0})
    (row,) = served_of(profile, [baselines({"A": (100.0, 102.0)}), baselines({})])
    assert [figures.missing for figures in row.by_target] == ["lacks 1M-read", "lacks 4K-read and 1 more"]
    assert row.by_target[1].ratio is None


def test_rates_of_a_workload_name_their_rounds() -> None:
    cell = Cell.parse("4K-read")
    cells = {("A", cell): Baseline("A", cell, (9.0, 9.1)), ("B", cell): Baseline("B", cell, (9.0,), rounds=(1,))}
    apart = Baselines(cells, "test")
    (note,) = _of_which_rounds([baselines({"A": (100.0, 102.0)}), apart])
    assert note == f"target 2: {ROUNDS_OF_WORKLOADS}"


def test_variances_of_a_target_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for every row: with a hundred configurations that took seven seconds."""
    asked: list[Baselines] = []
    worked_out = comparison.own_spreads

    def counted(of: Baselines) -> Mapping[tuple[str, Cell], Spread]:
        asked.append(of)
        return worked_out(of)

    monkeypatch.setattr(comparison, "own_spreads", counted)
    many = baselines({f"C{i}": (100.0 + i, 102.0 + i) for i in range(50)})
    assert len(rows_of([many, many])) == 50
    assert len(asked) == 2


@pytest.mark.parametrize("also", [(), ("lab",)])
def test_a_dry_run_of_several_clusters_is_one_document(
    also: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cephfit.cli.sweep import sweep_planned

    monkeypatch.setattr(sweep_planned, "planned", lambda _file, text, *_: {"plan of": text})
    targets = [word for text in ("ceph:a", "ceph:b", *also) for word in ("--target", text)]
    done = CliRunner().invoke(sweep, ["run", "two.yaml", *targets, "--json"], catch_exceptions=False)
    assert json.loads(done.output) == {
        "plans": [{"target": text, "plan of": text} for text in ("ceph:a", "ceph:b")],
        "not_measured": list(also),
    }
    one = CliRunner().invoke(sweep, ["run", "two.yaml", "--target", "ceph:a", "--json"], catch_exceptions=False)
    assert json.loads(one.output) == {"plan of": "ceph:a"}
    monkeypatch.setattr(sweep_planned, "print_planned", lambda document: print(document))
    said = CliRunner().invoke(sweep, ["run", "two.yaml", *targets], catch_exceptions=False).output
    assert "On ceph:b:" in said
    assert said.count("Nothing was changed") == 1
    assert ("nothing was measured on lab either" in said) == bool(also)


def test_compare_fits_80_columns_and_writes_no_exponents(measured: Path) -> None:
    document = json.loads(compared(measured, "--json"))
    lines = compared(measured).splitlines()
    table = [re.split(r"\s{2,}", line) for line in lines if re.match(r"(A|ssd|configuration) ", line)]
    assert table[0] == ["configuration", "cell", "1: IOPS", "2: IOPS", "2 / 1"]
    assert max(map(len, table_text(table[0], table[1:], width=80).split("\n"))) <= 80
    assert {row[4].split(") ")[1] for row in table[1:]} <= {"worse", "better", "not distinguishable"}
    assert [float(row[2].split()[0].replace(",", "")) for row in table[1:]] == [
        pytest.approx(row["there"][0]["iops"]["mean"], rel=1e-3) for row in document["rows"]
    ]
    assert (_number(12345.6), _number(0.98765), _number(1000.4)) == ("12,346", "0.9877", "1,000")


def baselines(rates: dict[str, tuple[float, ...]]) -> Baselines:
    cell = Cell.parse("4K-read")
    return Baselines({(name, cell): Baseline(name, cell, iops) for name, iops in rates.items()}, "test")


def test_a_configuration_missing_on_one_target_is_marked() -> None:
    first = baselines({"A": (100.0, 102.0), "B": (50.0, 51.0)})
    second = baselines({"A": (200.0, 204.0), "C": (10.0, 11.0)})
    rows = {row.configuration: row for row in rows_of([first, second])}
    assert rows["A"].by_target[1].differs is True
    assert rows["A"].by_target[1].ratio is not None and rows["A"].by_target[1].ratio.mean == pytest.approx(2.0)
    assert rows["B"].by_target[1].missing == "not measured there"
    assert rows["C"].by_target[0].missing == "not measured there"
    assert rows["C"].by_target[1].ratio is None


def test_three_targets_are_in_separate_rows() -> None:
    rates = {"A": (100.0, 102.0)}
    targets = [baselines(rates), baselines({"A": (200.0, 204.0)}), baselines({})]
    (row,), _ = with_verdicts(rows_of(targets), [])
    first, second, third = _lines((row.configuration, str(row.cell)), row.by_target)
    assert first[:3] == ["A", "4K-read", "1"]
    assert second[:3] == ["", "", "2"]
    assert second[4].startswith("2 (") and second[4].endswith("better")
    assert third[2:] == ["3", "not measured there", "-"]


def test_runs_on_different_releases_name_them_and_the_way_to_their_defaults(tmp_path: Path) -> None:
    """A run knows its release; cells are compared as between any two targets."""
    store = tmp_path / "s.sqlite"
    with Store.open(str(store), create=True) as opened:
        for number, version in enumerate(("16.2.15 (ee28) pacific", "18.2.7 (6b0e) reef")):
            run = example_run(
                run_id=f"quick-{number}",
                target=f"lab:{number}",
                created_ns=number + 1,
                facts={"versions": {"ceph": {f"ceph version {version} (stable)": 7}}},
            )
            opened.add_run(run)
            for group in example_samples():
                opened.add_samples(run.run_id, group, fio_json=None)
            opened.finish_run(run.run_id)
    text = compared(tmp_path)
    assert "1: lab:0, run quick-0, Ceph 16.2.15" in text
    assert "2: lab:1, run quick-1, Ceph 18.2.7" in text
    assert "`cephfit params changed 16.2.15..18.2.7`" in text
    document = json.loads(compared(tmp_path, "--json"))
    assert [run["ceph_version"] for run in document["runs"]] == ["16.2.15", "18.2.7"]


def test_a_command_that_a_cluster_refuses_is_reported_for_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its class has the name of another one, with other arguments."""

    def refuse(*_: object) -> None:
        raise RefusedError("`config set` was refused", where="mon", remedy="see the key", code=errno.EACCES)

    monkeypatch.setattr(sweep_text, "measure", refuse)
    monkeypatch.setattr(concurrent_targets, "_exit_with_parent", lambda pipe: None)
    ours, its = Pipe()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        concurrent_targets._measure_in_process(cast(Any, None), "ceph", its)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    its.close()
    ended: dict[str, concurrent_targets.Finished] = {}
    concurrent_targets._listen({ours: "ceph"}, ended, {})
    ours.close()
    assert str(ended["ceph"].error) == "mon: `config set` was refused\n  see the key"
