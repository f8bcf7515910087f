"""Several runs at a glance: pages, an index and tables, and how much of a workload each serves."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from example_run import RUN_ID, example_profile, example_run, example_samples

from cephfit.cli.reports.report_command import command
from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import SIZE_BINS, Cell, Op
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import Sample
from cephfit.mapper import predictor
from cephfit.results import open_baselines
from cephfit.results.report import formatting
from cephfit.results.report.report_build import are_its_ratios
from cephfit.results.statistics.workload_rate import workload_rates
from cephfit.results.store.sample_store import Store

READ, WRITE = Cell.parse("4K-randread"), Cell.parse("4K-randwrite")
NONE = {size.name: 0 for size in SIZE_BINS}
MIX = Profile("mix", {Op.READ: {**NONE, "4K": 300}, Op.WRITE: {**NONE, "4K": 100}}, {Op.READ: 1.0, Op.WRITE: 1.0})


def give(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def twice_as_fast(sample: Sample) -> Sample:
    metrics = sample.metrics
    return sample if metrics is None else replace(sample, metrics=replace(metrics, iops=2 * metrics.iops))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clusters, the second twice as fast; a third run has not measured anything yet."""
    place = tmp_path_factory.mktemp("folder") / "results.sqlite"
    with Store.open(place, create=True) as opened:
        opened.add_run(example_run(finished=True))
        opened.add_run(example_run(run_id="fast", target="ceph:fast", created_ns=2**62))
        opened.add_run(example_run(run_id="empty", target="ceph:empty", created_ns=2**61 + 1))
        for group in example_samples():
            opened.add_samples(RUN_ID, group, fio_json=None)
            twice = [
                s if s.metrics is None else replace(s, metrics=replace(s.metrics, iops=2 * s.metrics.iops))
                for s in group
            ]
            opened.add_samples("fast", twice, fio_json=None)
    return place


@pytest.fixture
def profiles(tmp_path: Path) -> list[str]:
    files = []
    for profile in (example_profile(), MIX):
        path = tmp_path / f"{profile.name}.json"
        path.write_text(json.dumps(profile.to_json()))
        files += ["--profile", str(path)]
    return files


def test_a_page_for_every_run_and_workload_with_an_index(store: Path, profiles: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    document = json.loads(give("--store", store, "--folder", folder, *profiles, "--json").output)
    assert [(p["run"], p["workload"]) for p in document["pages"]] == [
        (run, name) for run in ("fast", RUN_ID) for name in ("pgbench", "mix")
    ]
    assert document["lost"] == ["run empty on ceph:empty: no samples yet"]
    index = (folder / "index.html").read_text()
    for page in document["pages"]:
        assert Path(page["output"]).read_text().startswith("<!DOCTYPE html>")
        assert f'href="{Path(page["output"]).name}"' in index
    assert "No samples yet: run empty on ceph:empty." in index and "unfinished" in index
    assert sorted(p.name for p in folder.iterdir()) == sorted(
        ["index.html", "cells.csv", "workloads.csv", *(Path(p["output"]).name for p in document["pages"])]
    )

    served = {
        (row["run"], row["profile"]): row
        for row in rows_of(folder / "workloads.csv")
        if row["configuration"] == "A"
    }
    for name in ("pgbench", "mix"):
        slow, fast = served[RUN_ID, name], served["fast", name]
        assert float(fast["accesses_per_s"]) == pytest.approx(2 * float(slow["accesses_per_s"]))
        assert (
            float(slow["accesses_per_s_low"]) < float(slow["accesses_per_s"]) < float(slow["accesses_per_s_high"])
        )
    cells = rows_of(folder / "cells.csv")
    assert len(cells) == len({(r["run"], r["configuration"], r["size"], r["pattern"]) for r in cells})
    assert {row["run"] for row in cells} == {RUN_ID, "fast"}
    assert all(float(row["latency_ms_low"]) < float(row["latency_ms"]) for row in cells)


def test_chosen_runs_and_no_workload(store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    result = give("--store", store, "--folder", folder, "--run", RUN_ID)
    assert f"Index: {folder / 'index.html'}" in result.output
    assert sorted(p.name for p in folder.iterdir()) == ["cells.csv", "index.html", f"{RUN_ID}.html"]
    assert "Without a workload" in (folder / "index.html").read_text()


def test_one_page_for_a_workload_that_was_never_mapped(store: Path, profiles: list[str], tmp_path: Path) -> None:
    give("--store", store, "--run", RUN_ID, "-o", tmp_path / "mix.md", *profiles[2:])
    text = (tmp_path / "mix.md").read_text()
    best = predictor().predict(MIX, open_baselines(store, RUN_ID)).best
    assert f"For the workload mix, configuration {best}" in text
    rate = workload_rates(MIX, open_baselines(store, RUN_ID))["A"].accesses_per_s
    assert rate.interval is not None
    assert (
        f"100 is about {rate.mean:.1f} accesses of the mix per second (95 % interval {rate.interval.low:.1f} to"
        in text
    )
    with Store.open(store) as opened:
        assert opened.document(RUN_ID, "predictions") is None, "a report changes nothing"


def test_what_does_not_go_together_is_refused(store: Path, profiles: list[str], tmp_path: Path) -> None:
    for arguments, said in (
        ((), "either -o FILE or --folder"),
        (("-o", tmp_path / "r.html", "--folder", tmp_path), "either -o FILE or --folder"),
        (("-o", tmp_path / "r.html", "--run", "fast", "--run", RUN_ID), "one page takes one --run"),
        (("-o", tmp_path / "r.html", *profiles), "one page takes one --profile"),
        (("--folder", tmp_path / "f", "--format", "md"), "omit --format"),
    ):
        result = give("--store", store, *arguments)
        assert result.exit_code == 2 and said in result.output, arguments
    with pytest.raises(InputError, match="nothing to report"):
        give("--store", store, "--folder", tmp_path / "f", "--run", "empty")
    assert not (tmp_path / "f").exists()


def test_cells_as_a_table(store: Path, tmp_path: Path) -> None:
    give("--store", store, "--run", RUN_ID, "-o", tmp_path / "cells.csv", "--what", "cells")
    baselines = open_baselines(store, RUN_ID)
    for row in rows_of(tmp_path / "cells.csv"):
        iops = baselines.of(row["configuration"], Cell.parse(f"{row['size']}-{row['pattern']}")).iops
        assert float(row["iops"]) == pytest.approx(sum(iops) / len(iops))
        assert (row["clients"], row["target"]) == ("2", "lab:default")


def baselines(rates: dict[tuple[str, Cell], tuple[float, ...]], **rounds: tuple[int, ...]) -> Baselines:
    return Baselines(
        {
            (name, cell): Baseline(name, cell, iops, rounds=rounds.get(name, ()) if cell == WRITE else ())
            for (name, cell), iops in rates.items()
        },
        "test",
    )


def test_a_mix_is_served_in_the_time_that_its_accesses_take() -> None:
    rates = workload_rates(MIX, baselines({("A", READ): (300.0, 300.0), ("A", WRITE): (100.0, 100.0)}))
    assert rates["A"].accesses_per_s.mean == 200.0, "300 in a second and 100 in another"
    assert rates["A"].nbytes_per_s == 200 * 4096
    assert rates["A"].accesses_per_s.interval is not None
    assert rates["A"].accesses_per_s.interval.low == pytest.approx(200.0, rel=0.01), "no scatter was seen"


def test_what_was_not_measured_in_all_cells_has_no_rate() -> None:
    figures = baselines({("A", READ): (3.0, 3.1), ("A", WRITE): (1.0, 1.1), ("B", READ): (3.0, 3.1)})
    assert set(workload_rates(MIX, figures)) == {"A"}


LARGE = Cell.parse("32M-randwrite")
ALMOST = Profile(
    "almost",
    {Op.READ: {**NONE, "4K": 3_000_000}, Op.WRITE: {**NONE, "4K": 1_000_000, "32M": 1}},
    {Op.READ: 1.0, Op.WRITE: 1.0},
)
"""One large write among millions of accesses."""


def without_large_writes(place: Path) -> Path:
    """The store of a sweep that never measured them."""
    with Store.open(place, create=True) as opened:
        opened.add_run(example_run(finished=True))
        for group in example_samples():
            if group[0].key.cell != LARGE:
                opened.add_samples(RUN_ID, group, fio_json=None)
    return place


def test_a_rate_does_without_what_the_prediction_does_without_and_says_so(tmp_path: Path) -> None:
    place, folder, profile = without_large_writes(tmp_path / "s.sqlite"), tmp_path / "f", tmp_path / "almost.json"
    profile.write_text(json.dumps(ALMOST.to_json()))
    give("--store", place, "--folder", folder, "--profile", profile)
    rows = rows_of(folder / "workloads.csv")
    (default,) = (row for row in rows if row["configuration"] == "A")
    expected = workload_rates(MIX, open_baselines(place))["A"].accesses_per_s.mean
    assert float(default["accesses_per_s"]) == pytest.approx(expected), "that of the accesses that were measured"
    assert {row["rate_without"] for row in rows} == {"32M-randwrite"}
    index = (folder / "index.html").read_text()
    assert f'<td data-label="Default, accesses/s" class="n">{formatting.number(expected)}<small>' in index
    assert "rates without 32M-randwrite, not measured" in index
    give("--store", place, "-o", tmp_path / "one.md", "--profile", profile)
    for page in (folder / f"{RUN_ID}_almost.html", tmp_path / "one.md"):
        stated = "sum over all clients; 32M-randwrite was not measured, contributes next to nothing and is omitted"
        assert stated in page.read_text()


def test_a_rate_does_without_no_more_than_the_prediction_does(tmp_path: Path) -> None:
    """A hundredth of the accesses, which take most of the time."""
    much = replace(ALMOST, accesses={Op.READ: {**NONE, "4K": 75}, Op.WRITE: {**NONE, "4K": 24, "32M": 1}})
    measured = open_baselines(without_large_writes(tmp_path / "s.sqlite"))
    assert workload_rates(much, measured) == {}
    with pytest.raises(InputError, match="no baseline for 32M-randwrite"):
        predictor().predict(much, measured)


def test_rates_of_nothing_are_none() -> None:
    nothing = Profile("nothing", dict.fromkeys(Op, NONE), dict.fromkeys(Op, 0.0))
    assert workload_rates(nothing, baselines({("A", READ): (3.0, 3.1)})) == {}


def test_only_whole_rounds_tell_of_the_scatter() -> None:
    measured = {("A", READ): (300.0, 330.0), ("A", WRITE): (100.0, 110.0)}
    whole = workload_rates(MIX, baselines(measured))["A"].accesses_per_s
    apart = workload_rates(MIX, baselines(measured, A=(2, 3)))["A"].accesses_per_s
    assert whole.mean == apart.mean
    assert whole.interval is not None and whole.interval.low < whole.mean
    assert apart.interval is None, "no round has both cells"


def test_where_rounds_differ_rates_stand_to_each_other_as_within_the_rounds_of_both() -> None:
    """The cluster was twice as fast in the second round, in which alone B was measured."""
    writes = Profile("w", {Op.READ: NONE, Op.WRITE: {**NONE, "4K": 10}}, {Op.READ: 0.0, Op.WRITE: 1.0})
    cells = {
        ("A", WRITE): Baseline("A", WRITE, (300.0, 600.0), rounds=(0, 1)),
        ("B", WRITE): Baseline("B", WRITE, (660.0,), rounds=(1,)),
    }
    rates = workload_rates(writes, Baselines(cells, "test"))
    assert rates["A"].accesses_per_s.mean == pytest.approx(450.0)
    assert rates["B"].accesses_per_s.mean == pytest.approx(450.0 * 1.1)


def test_a_noisy_default_is_not_taken_to_be_as_calm_as_the_others() -> None:
    """With one scatter for all of them, its rate would have their narrow interval."""
    noisy, calm = (82.0, 112.0, 106.0), (100.0, 101.0, 99.0)
    measured = {(name, cell): noisy if name == "A" else calm for name in "ABCDEFG" for cell in (READ, WRITE)}
    rates = workload_rates(MIX, baselines(measured))
    widths = {
        name: rate.accesses_per_s.interval.high / rate.accesses_per_s.mean - 1
        for name, rate in rates.items()
        if rate.accesses_per_s.interval is not None
    }
    assert widths["A"] > 1.25 * widths["B"]


def test_rates_are_shown_next_to_a_prediction_only_if_it_is_their_ratio() -> None:
    figures = baselines(
        {
            ("A", READ): (300.0, 303.0),
            ("A", WRITE): (100.0, 101.0),
            ("B", READ): (900.0, 903.0),
            ("B", WRITE): (500.0, 501.0),
        }
    )
    rates, by_time = workload_rates(MIX, figures), predictor("time").predict(MIX, figures)
    assert are_its_ratios(by_time, rates)
    waited = tuple(
        p if p.configuration == "A" else replace(p, relative=0.6 * p.relative, low=0.5 * p.relative)
        for p in by_time.predictions
    )
    assert not are_its_ratios(replace(by_time, model="waiting", predictions=waited), rates)
    assert are_its_ratios(predictor("meyer").predict(MIX, figures), rates), "it has no rates of its own"
