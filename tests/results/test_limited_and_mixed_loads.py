"""Rates at a load's own limit, and rates that were measured together with the other direction of a mix."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cephfit.cli.main import cephfit
from cephfit.core.errors import InputError
from cephfit.core.protocols import Client
from cephfit.core.values.baseline import Baseline, Baselines, MeasuredLoad, parts_of_mix
from cephfit.core.values.cells import SIZE_BINS, Cell, Op
from cephfit.core.values.prediction import PredictionSet, Verdict
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.mapper import predictor
from cephfit.mapper.decisions.contrasts import ranked
from cephfit.measure.engine import CellRun
from cephfit.measure.fio.fio_files import render_job
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.results.statistics.workload_rate import workload_rates
from cephfit.sweep.declaration.sweep_file import parse_sweep

READ, WRITE = Cell.parse("4K-randread"), Cell.parse("4K-randwrite")

SWEEP = """
schema_version: 1
name: loads
description: a mix and a limit
configurations:
  A: {}
  A-again: {}
  ssd: {pool: {crush_rule: ssd}}
measurement:
  {sizes: [4K], patterns: [read, write, randread, randwrite], clients: 2, volume_size: 16M, repeats: 3,
   ramp_seconds: 0.1, run_seconds: 0.5, ioengine: libaio, iodepth: 1, direct: true, cache: warm, seed: 1,
   loads: {gentle: {rate_iops: 20}, capped: {rate_iops: 1000}, mixed: {read_pct: 70, iodepth: 4}}}
"""


def workload(reads: int = 700, writes: int = 300, name: str = "mixture") -> Profile:
    none = {size.name: 0 for size in SIZE_BINS}
    return Profile(
        name,
        {Op.READ: {**none, "4K": reads}, Op.WRITE: {**none, "4K": writes}},
        {Op.READ: 1.0, Op.WRITE: 1.0},
    )


def sample(
    iops: float,
    load: Mapping[str, Any],
    cell: Cell = READ,
    *,
    client: str = "c0",
    repeat: int = 0,
    **evidence: Any,
) -> Sample:
    metrics = Metrics(iops, iops * 4096, max(1, round(10 * iops)), 10 * 10**9, 1e9 / iops)
    shape = {"iodepth": 1, "clients": 1, "read_pct": None, "rate_iops": None, "rate_nbytes_per_s": None, **load}
    key = SampleKey("A", cell, client, repeat)
    return Sample(key, State.OK, metrics, 0, 1, evidence={"load": shape, **evidence})


@pytest.mark.parametrize(
    ("load", "cell", "iops", "is_at_limit"),
    [
        ({}, READ, 100, False),
        ({"rate_iops": 100}, READ, 97.5, True),
        ({"rate_iops": 100}, READ, 95, False),
        ({"rate_nbytes_per_s": 1 << 20}, Cell.parse("32K-write"), 31.5, True),
        ({"rate_nbytes_per_s": 1 << 20}, Cell.parse("32K-write"), 29, False),
        ({"rate_nbytes_per_s": 1 << 20}, READ, 31.5, False),
        ({"rate_iops": 100, "read_pct": 70}, READ, 69, True),
        ({"rate_iops": 100, "read_pct": 70}, WRITE, 29.5, True),
        ({"rate_iops": 100, "read_pct": 70}, READ, 60, False),
        # Nine accesses in ten seconds at one in a second: the tenth had waited for its turn.
        ({"rate_iops": 1}, READ, 0.9, True),
    ],
)  # fmt: skip
def test_a_client_that_did_what_it_was_limited_to_is_at_the_limit(
    load: dict[str, int], cell: Cell, iops: float, is_at_limit: bool
) -> None:
    found = baselines_of([sample(iops, load, cell)], source="test").measured_load
    assert found.at_limit == ({("A", cell)} if is_at_limit else set())
    assert found.read_pct == load.get("read_pct")


def test_one_client_in_one_repeat_is_enough_and_a_mix_is_limited_from_both_sides() -> None:
    slow = [sample(50, {"rate_iops": 100}, client=c, repeat=r) for c in ("c0", "c1") for r in (0, 1)]
    assert not baselines_of(slow, source="test").measured_load.at_limit
    one = [*slow[:-1], replace(slow[-1], metrics=sample(99, {}).metrics)]
    found = baselines_of(one, source="test").measured_load
    assert (found.at_limit, found.limit) == ({("A", READ)}, "100 IOPS")
    other = {"direction": "write", "iops": 30.0}
    mix = sample(60, {"rate_iops": 100, "read_pct": 70}, other_direction=other)
    assert baselines_of([mix], source="test").measured_load.at_limit == {("A", READ)}


def test_the_parts_of_a_limit_in_a_mix_are_those_that_fio_is_given() -> None:
    measurement = parse_sweep(SWEEP, file="loads.yaml").measurement.under("capped")
    for limit in (1, 2, 7, 250):
        limited = replace(measurement, rate_iops=limit, read_pct=33)
        run = CellRun("A", READ, 0, 0, limited, (Client("c0", {"filename": "/dev/null"}, 1 << 30),), {"c0": 1})
        parts = parts_of_mix(limit, 33)
        assert f"rate_iops={parts[Op.READ]},{parts[Op.WRITE]}\n" in render_job(run)


def predicted(
    rates: Mapping[str, tuple[float, float]], at_limit: set[tuple[str, Cell]], model: str = "time"
) -> PredictionSet:
    """Of 700 random reads and 300 random writes, three repeats 1 % apart."""
    wobbles = ((0.99, 1.0, 1.01), (1.01, 0.99, 1.0), (1.0, 1.01, 0.99))
    cells = {
        (name, cell): Baseline(name, cell, tuple(rate * w for w in wobbles[(i + j) % 3]))
        for i, (name, both) in enumerate(rates.items())
        for j, (cell, rate) in enumerate(zip((READ, WRITE), both, strict=True))
    }
    load = MeasuredLoad(limit="250 IOPS", at_limit=frozenset(at_limit))
    return ranked(predictor(model), workload(), Baselines(cells, "test", measured_load=load))


@pytest.mark.parametrize("model", ["time", "meyer"])
def test_a_rate_at_the_limit_is_a_lower_bound(model: str) -> None:
    rates = {"A": (200.0, 100.0), "ssd": (250.0, 250.0), "slow": (100.0, 50.0)}
    found = predicted(rates, {("ssd", READ), ("ssd", WRITE)}, model)
    ssd, slow = found.of("ssd"), found.of("slow")
    assert (ssd.verdict, ssd.high) == (Verdict.BETTER, math.inf), "faster it is, by how much is not known"
    assert slow.verdict is Verdict.WORSE and math.isfinite(slow.high) and slow.low > 0
    assert (
        "the load's own limit of 250 IOPS per client was reached under ssd in 4K-randread, 4K-randwrite: these "
        "rates are lower bounds, and what the storage can do there was not measured"
    ) in found.notes


@pytest.mark.parametrize("model", ["time", "meyer"])
def test_two_at_the_limit_are_not_distinguished_and_slower_ones_are(model: str) -> None:
    rates = {"A": (250.0, 250.0), "ssd": (250.0, 250.0), "nvme": (249.0, 252.0), "slow": (100.0, 50.0)}
    at_limit = {(name, cell) for name in ("A", "ssd", "nvme") for cell in (READ, WRITE)}
    found = predicted(rates, at_limit, model)
    for name in ("ssd", "nvme"):
        p = found.of(name)
        assert (p.verdict, p.low, p.high) == (Verdict.INDISTINGUISHABLE, 0.0, math.inf)
    slow = found.of("slow")
    assert (slow.verdict, slow.low) == (Verdict.WORSE, 0.0) and slow.high < 100
    assert (found.best, found.worst) == ("A", "slow")
    # How much slower the slow one is, is unknown; so is the smallest detectable difference.
    assert math.isinf(found.noise_floor)


def test_the_best_of_several_at_the_limit_is_not_known() -> None:
    rates = {"A": (200.0, 100.0), "ssd": (250.0, 250.0), "nvme": (250.0, 240.0), "mid": (220.0, 120.0)}
    found = predicted(rates, {("ssd", READ), ("ssd", WRITE), ("nvme", READ)})
    assert found.best == "ssd"
    assert found.as_good == ("nvme",), "its reads may be faster; mid is slower, whatever ssd could do"


def test_a_limit_where_next_to_nothing_lies_changes_next_to_nothing() -> None:
    rates = {"A": (200.0, 100.0), "ssd": (250.0, 250.0)}
    free = predicted(rates, set()).of("ssd")
    held = predicted(rates, {("ssd", WRITE)}).of("ssd")
    # Writes take 300 / 250 of 700 / 250 + 300 / 250 seconds; without them 0.7 of the time is left.
    assert held.high == pytest.approx(free.high / 0.7, rel=0.01)
    assert held.low == free.low


def give(*arguments: str | Path) -> str:
    result = CliRunner().invoke(cephfit, [str(word) for word in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two simulated targets, and profiles."""
    folder = tmp_path_factory.mktemp("loads")
    (folder / "loads.yaml").write_text(SWEEP)
    for profile in (workload(), workload(100, 0, "reads")):
        (folder / f"{profile.name}.json").write_text(profile.dumps())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        for target in ("sim", "sim:seed=9"):
            give("sweep", "run", folder / "loads.yaml", "--target", target, "--store", folder / "s.sqlite")
    return folder


def mapped(folder: Path, profile: str, load: str) -> dict[str, Any]:
    arguments = (folder / f"{profile}.json", "--baselines", folder / "s.sqlite", "--load", load, "--no-save")
    document: dict[str, Any] = json.loads(give("map", *arguments, "--json"))
    return document


def test_map_names_the_limit_and_gives_no_verdict_by_it(folder: Path) -> None:
    gentle = mapped(folder, "mixture", "gentle")
    assert (gentle["best"], gentle["worst"], gentle["noise_floor"]) == ("A", "A", None)
    (note,) = (note for note in gentle["notes"] if "limit of 20 IOPS per client" in note)
    assert "A, A-again, ssd in 4K-randread, 4K-randwrite" in note
    capped = mapped(folder, "reads", "capped")
    ssd = next(p for p in capped["predictions"] if p["configuration"] == "ssd")
    assert (capped["best"], ssd["verdict"], ssd["high"]) == ("ssd", "better", None)
    arguments = (folder / "reads.json", "--baselines", folder / "s.sqlite", "--load", "capped", "--no-save")
    text = give("map", *arguments)
    assert f"Best: ssd, at least {ssd['low'] - 100:+.1f} % against the default\n" in text
    assert f"above {ssd['low']:.1f}" in text


def test_map_names_the_mix_only_where_the_workload_has_another(folder: Path) -> None:
    said = (
        "every cell was measured in a mix of 70 % reads, and reads has 100 % reads: the prediction is from rates "
        "in that mix, which may rank the configurations differently"
    )
    assert said in mapped(folder, "reads", "mixed")["notes"]
    assert not any("in a mix of" in note for note in mapped(folder, "mixture", "mixed")["notes"])
    assert not any("in a mix of" in note for note in mapped(folder, "reads", "")["notes"])


def test_a_report_gives_no_accesses_per_second_of_a_mix_or_of_a_limit(folder: Path) -> None:
    pages = {}
    for load in ("", "mixed", "gentle", "capped"):
        profile = "reads" if load == "capped" else "mixture"
        arguments = ("--load", load, "--profile", folder / f"{profile}.json", "-o", folder / "page.html")
        give("report", "--store", folder / "s.sqlite", *arguments)
        pages[load] = (folder / "page.html").read_text()
    assert "accesses of the mix per second" in pages[""] and "No accesses per second" not in pages[""]
    for load in ("mixed", "gentle"):
        assert "accesses of the mix per second" not in pages[load]
        assert pages[load].count("No accesses per second are given") == 1
    assert "was measured while I/O of the other direction ran at the same time" in pages["mixed"]
    assert "under A, A-again, ssd in 4K-randread, 4K-randwrite" in pages["gentle"]
    assert "a lower bound: at the load&#39;s limit" in pages["gentle"]
    assert "and perhaps faster" in pages["gentle"], "the heat map says so, too"
    assert "It hides what the storage can do there" in pages["gentle"]
    assert "∞" not in pages["gentle"]
    assert "hides what the storage can do" not in pages["mixed"] + pages[""]
    # The default did not reach this limit: its rate is its own.
    assert "accesses of the mix per second" in pages["capped"] and "at least 2." in pages["capped"]


def test_a_report_without_a_workload_names_the_limit_too(folder: Path) -> None:
    give("report", "--store", folder / "s.sqlite", "--load", "capped", "-o", folder / "page.html")
    page = (folder / "page.html").read_text()
    assert "The load&#39;s own limit of 1000 IOPS per client was reached under" in page


def test_the_table_of_workloads_and_the_comparison_have_no_rate_there(folder: Path) -> None:
    arguments = ("--load", "mixed", "--profile", folder / "mixture.json")
    document = json.loads(give("compare", "--store", folder / "s.sqlite", *arguments, "--json"))
    there = [there for one in document["workloads"] for there in one["there"]]
    assert {(t["accesses_per_s"], t["missing"]) for t in there} == {(None, "not known under a mix")}
    assert sum("No accesses per second are given" in note for note in document["notes"]) == 1
    arguments = ("--load", "capped", "--profile", folder / "mixture.json")
    document = json.loads(give("compare", "--store", folder / "s.sqlite", *arguments, "--json"))
    missing = {one["configuration"]: one["there"][0]["missing"] for one in document["workloads"]}
    assert missing == {"A": "", "A-again": "", "ssd": "reached the load's limit"}
    assert any(note.startswith("target 1: the load's own limit of 1000 IOPS") for note in document["notes"])
    give(
        "report",
        "--store",
        folder / "s.sqlite",
        "--folder",
        folder / "pages",
        "--profile",
        folder / "mixture.json",
    )
    rows = (folder / "pages" / "workloads.csv").read_text().splitlines()
    column = rows[0].split(",").index("accesses_per_s")
    empty = {(row.split(",")[1], bool(row.split(",")[column])) for row in rows[1:] if ",A," in row}
    assert empty == {("", True), ("mixed", False), ("gentle", False), ("capped", True)}


def test_the_rate_of_one_below_the_limit_is_given_also_where_the_default_is_at_it() -> None:
    rates = {("A", READ): (250.0, 250.5), ("slow", READ): (100.0, 101.0)}
    cells = {(name, cell): Baseline(name, cell, iops) for (name, cell), iops in rates.items()}
    load = MeasuredLoad(limit="250 IOPS", at_limit=frozenset({("A", READ)}))
    found = workload_rates(workload(100, 0), Baselines(cells, "test", measured_load=load))
    assert set(found) == {"slow"}
    assert found["slow"].accesses_per_s.mean == pytest.approx(100.5, rel=1e-3)


@pytest.mark.parametrize(("load", "why"), [("capped", "at most 1000 IOPS per client"), ("mixed", "70 % reads")])
def test_baselines_of_a_mix_or_a_limit_are_not_written_as_those_of_a_plain_load(
    tmp_path: Path, load: str, why: str
) -> None:
    """They would be read back as rates of separate reads and writes without a limit."""
    sweep, store = tmp_path / "loads.yaml", str(tmp_path / "r.sqlite")
    sweep.write_text(SWEEP)
    run = CliRunner().invoke(cephfit, ["sweep", "run", str(sweep), "--target", "sim", "--store", store])
    assert run.exit_code == 0, run.output
    arguments = ["report", "--store", store, "--what", "baselines", "-o", str(tmp_path / "b.csv")]
    with pytest.raises(InputError, match=why):
        CliRunner().invoke(cephfit, [*arguments, "--load", load], catch_exceptions=False)
    assert not (tmp_path / "b.csv").exists()
    assert CliRunner().invoke(cephfit, arguments).exit_code == 0
