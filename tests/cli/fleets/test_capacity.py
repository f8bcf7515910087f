"""`cephfit capacity`, on queues with known service rates, and on the simulated cluster."""

import csv
import json
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from queue_samples import queue_samples, sustainable
from scipy.optimize import brentq

from cephfit.cli.fleets.capacity_command import parse_growth
from cephfit.cli.fleets.capacity_text import month_after, plain_figure, summary_of
from cephfit.cli.main import cephfit
from cephfit.core.errors import InputError
from cephfit.core.values.cells import Pattern
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.sample import Run
from cephfit.core.values.supply import Estimate
from cephfit.mapper.absolute_rates.load_curve import Limit
from cephfit.operations.fleets.capacity_fleet import BANDWIDTH, IOPS, PlanInput, PoolCapacity
from cephfit.operations.fleets.capacity_plan import months_until_full
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.targets.simulated_storage import Access, iops

RATES = {
    "A": {"4K-randread": 1000.0, "4K-randwrite": 400.0},
    "fast": {"4K-randread": 9000.0, "4K-randwrite": 4000.0},
}


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cephfit, ["capacity", *map(str, arguments)])


def plan(*arguments: object) -> dict[str, Any]:
    done = call(*arguments, "--json")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def of(document: Mapping[str, Any], pool: str, name: str = "") -> dict[str, Any]:
    """The part of a pool, or of a class on it."""
    found: dict[str, Any] = next(p for p in document["pools"] if p["pool"] == pool)
    return next(c for c in found["classes"] if c["class"] == name) if name else found


MakeStore = Callable[..., Path]


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:
    def make(**how: Any) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite"
        with Store.open(str(path), create=True) as store:
            store.add_run(Run("r1", "capacity", "", "digest", "queue", 1, 0))
            samples = list(queue_samples(how.pop("rates", RATES), **how))
            store.add_samples("r1", samples, fio_json=None)
            store.finish_run("r1")
        return path

    return make


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """A workload of 30 random 4K reads a second."""
    return write_profile(tmp_path, "reader", {"read": {"4K": 1800}, "write": {}}, seconds=60)


@pytest.fixture
def writer(tmp_path: Path) -> Path:
    """A workload of 20 random 4K writes a second."""
    return write_profile(tmp_path, "writer", {"read": {}, "write": {"4K": 1200}}, seconds=60)


def write_profile(
    folder: Path, name: str, accesses: dict[str, Any], *, seconds: float | None, **more: Any
) -> Path:
    description = {**({} if seconds is None else {"duration_seconds": seconds}), **more}
    document = {"schema_version": 1, "name": name, "accesses": accesses, "random": {"read": 1, "write": 1}}
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**document, "description": description}))
    return path


def test_the_headroom_is_the_queues_rate_at_the_limit_over_the_demand(make_store: MakeStore, reader: Path) -> None:
    found = plan(reader, "--baselines", make_store(), "--clients-from", "reader=10", "--p99-ms", 20)
    true = sustainable(1000, 0.02)
    own = of(found, "A", "reader")
    assert own["demand_per_s"] == pytest.approx(300)
    assert own["sustainable_per_s"]["value"] == pytest.approx(true, rel=0.01)
    assert of(found, "A")["headroom"]["IOPS"]["value"] == pytest.approx(true / 300, rel=0.01)
    assert own["more_vms"]["value"] == math.floor(true / 30) - 10
    assert own["vms_alone"]["value"] == math.floor(true / 30)
    assert own["share"] == pytest.approx(300 / true, rel=0.01)
    assert found["ok"] and found["judged"] == ["A"]


def test_classes_on_one_pool_add_up(make_store: MakeStore, reader: Path, writer: Path) -> None:
    store = make_store()

    def planned(writers: int) -> dict[str, Any]:
        counts = f"reader=5,writer={writers}"
        return plan(reader, writer, "--baselines", store, "--clients-from", counts, "--p99-ms", 50, "--pool", "A")

    both = planned(5)
    shares = [c["share"] for c in of(both, "A")["classes"]]
    assert sum(shares) == pytest.approx(1 / of(both, "A")["headroom"]["IOPS"]["value"], rel=1e-4)
    # 150 reads of 1 ms, and 100 writes of 2.5 ms.
    assert shares[0] / shares[1] == pytest.approx(150 / 250, rel=1e-3)
    # What still fits of one class, added, fills the pool but not more.
    more = int(of(both, "A", "writer")["more_vms"]["value"])
    assert planned(5 + more)["ok"] and not planned(5 + more + 2)["ok"]


def test_two_classes_of_one_workload_are_one_class(make_store: MakeStore, reader: Path, tmp_path: Path) -> None:
    twin = write_profile(tmp_path, "twin", {"read": {"4K": 1800}, "write": {}}, seconds=60)
    store = make_store(noise=0.03, drift=0.02)
    two = of(plan(reader, twin, "--baselines", store, "--clients-from", "reader=4,twin=6"), "A")
    one = of(plan(reader, "--baselines", store, "--clients-from", "reader=10"), "A")
    for end in ("value", "low", "high"):
        assert two["headroom"]["IOPS"][end] == pytest.approx(one["headroom"]["IOPS"][end], rel=1e-9)


def test_intervals_contain_the_truth_and_narrow_with_steadier_figures(make_store: MakeStore, reader: Path) -> None:
    true, widths = sustainable(1000, 0.02), []
    for noise in (0.05, 0.005):
        inside, found = 0, []
        for seed in range(12):
            store = make_store(
                noise=noise, drift=noise, seed=seed, repeats=3, rates={"A": {"4K-randread": 1000.0}}
            )
            rate = of(plan(reader, "--baselines", store), "A", "reader")["sustainable_per_s"]
            inside += rate["low"] <= true <= rate["high"]
            found.append(rate["high"] / rate["low"])
        assert inside >= 10
        widths.append(statistics.median(found))
    assert widths[1] < 1.1 < widths[0]


def test_months_are_those_of_compound_growth(make_store: MakeStore, reader: Path) -> None:
    found = of(
        plan(reader, "--baselines", make_store(), "--clients-from", "reader=10", "--growth", "5%/month"), "A"
    )
    headroom = found["headroom"]["IOPS"]["value"]
    assert 1.05 ** found["months_until_full"]["IOPS"]["value"] == pytest.approx(headroom)
    half = Estimate(2.0, 1.0, 4.0)
    assert months_until_full(half, 1.0) == Estimate(1.0, 0.0, 2.0)
    assert months_until_full(Estimate(0.5, 0.0, math.inf), 0.1) == Estimate(0.0, 0.0, math.inf)
    assert parse_growth("100%/year") == pytest.approx(2 ** (1 / 12) - 1)
    assert parse_growth(" 2.5 % / month ") == parse_growth("2.5%") == pytest.approx(0.025)


def test_months_are_counted_from_today() -> None:
    assert month_after(date(2026, 1, 1), 0.5) == "2026-01"
    assert month_after(date(2026, 1, 20), 0.5) == "2026-02"
    assert month_after(date(2026, 11, 15), 14) == "2028-01"
    assert month_after(date(2026, 1, 1), math.inf) == "after 9999"


def test_space_is_a_resource_like_the_others(make_store: MakeStore, reader: Path) -> None:
    asked = ("--clients-from", "reader=10", "--space", "reader=10G", "--pool-space", "A=150G", "--growth", "10%")
    found = plan(reader, "--baselines", make_store(), *asked)
    pool = of(found, "A")
    assert pool["headroom"]["space"]["value"] == pytest.approx(1.5)
    assert pool["scarcest"] == "space" and of(found, "A", "reader")["more_vms"]["value"] == 5
    assert pool["months_until_full"]["space"]["value"] == pytest.approx(math.log(1.5) / math.log(1.1))
    assert "by space" in found["summary"] and "space" not in of(found, "fast")["headroom"]


def capacity_of(**headroom: Estimate) -> PoolCapacity:
    """A pool with this headroom by resource, under a growth of 5 % per month."""
    months = {name: months_until_full(h, 0.05) for name, h in headroom.items()}
    return PoolCapacity("A", (), headroom, months, False, ())


def test_a_resource_that_a_class_does_not_use_leaves_its_interval_alone(
    make_store: MakeStore, reader: Path, writer: Path
) -> None:
    store = make_store(noise=0.02, drift=0.01)
    asked = (reader, writer, "--baselines", store, "--clients-from", "reader=5,writer=1", "--p99-ms", 50)
    without = of(plan(*asked), "A", "writer")["more_vms"]
    plenty = ("--space", "reader=10G", "--pool-space", "A=10T")
    assert of(plan(*asked, *plenty), "A", "writer")["more_vms"] == without
    assert 0 < without["low"] <= without["value"] <= without["high"]


def test_a_fleet_fits_certainly_only_if_no_resource_is_in_doubt() -> None:
    exact, wide = Estimate(1.2, 1.2, 1.2), Estimate(1.26, 0.95, 1.67)
    pool = capacity_of(IOPS=wide, space=exact)
    assert pool.fits and pool.scarcest == "space"
    assert not pool.is_certain and pool.in_doubt == ("IOPS",)
    assert capacity_of(IOPS=Estimate(1.26, 1.01, 1.67), space=exact).is_certain
    assert capacity_of(IOPS=Estimate(0.9, 0.7, 1.1), space=Estimate(0.95, 0.95, 0.95)).is_certain, "by space"
    assert not capacity_of(IOPS=Estimate(0.9, 0.7, 1.1), space=exact).is_certain


def test_a_pool_may_be_full_as_early_as_any_resource() -> None:
    pool = capacity_of(IOPS=Estimate(1.26, 0.95, 1.67), space=Estimate(1.2, 1.2, 1.2))
    full = pool.full
    assert full is not None
    assert full.value == full.high == pytest.approx(math.log(1.2) / math.log(1.05))
    assert full.low == 0, "by IOPS it may be full now"


def test_the_summary_names_the_resource_in_doubt(make_store: MakeStore, reader: Path) -> None:
    # 1.2 times by space, and about 1.3 times by IOPS, with scatter.
    space = ("--space", "reader=10G", "--pool-space", "A=240G", "--growth", "5%/month")
    store = make_store(noise=0.15, drift=0.1, repeats=3)
    found = plan(reader, "--baselines", store, "--clients-from", "reader=20", *space)
    pool = of(found, "A")
    by_iops = pool["headroom"]["IOPS"]
    assert by_iops["low"] < 1 < pool["headroom"]["space"]["low"] < by_iops["value"]
    assert pool["fits"] and pool["scarcest"] == "space" and not pool["certain"]
    assert "by space (not certain: the interval by IOPS includes 1); full in" in found["summary"]
    assert "; 0 to 3.74)" in found["summary"]


def test_bandwidth_is_what_the_largest_measured_bandwidth_allows(make_store: MakeStore, reader: Path) -> None:
    found = of(plan(reader, "--baselines", make_store(), "--clients-from", "reader=10"), "A")
    assert found["headroom"]["bandwidth"]["value"] == pytest.approx(1000 / 300, rel=1e-4)


@pytest.mark.parametrize(
    ("more", "code", "begin"),
    [
        ((), 0, "fits: 10 VMs on A at p99 <= 20 ms: headroom 2.58 times"),
        (("--clients-from", "reader=30"), 1, "does not fit: 30 VMs on A"),
        (("--clients-from", "reader=30", "--pool", "fast"), 0, "fits: 30 VMs on fast"),
        (("--warn-below", "50%"), 0, "fits"),
        (("--warn-below", "70%"), 1, "fits"),
        (("--growth", "5%/month", "--within", "19"), 0, "fits"),
        (("--growth", "5%/month", "--within", "20"), 1, "fits"),
    ],
)
def test_the_first_line_and_the_exit_code_serve_cron(
    make_store: MakeStore, reader: Path, more: tuple[str, ...], code: int, begin: str
) -> None:
    given = more if "--clients-from" in more else ("--clients-from", "reader=10", *more)
    done = call(reader, "--baselines", make_store(), *given)
    assert done.exit_code == code, done.output
    assert done.stdout.startswith(begin)


def test_a_limit_that_no_measured_load_reaches_gives_a_lower_bound(make_store: MakeStore, reader: Path) -> None:
    store = make_store(levels={"": (1, 1), "c4": (4, 1)})
    found = plan(reader, "--baselines", store, "--p99-ms", 1000)
    rate = of(found, "A", "reader")["sustainable_per_s"]
    assert 990 < rate["value"] < 1000 and rate["high"] is None
    assert of(found, "A")["is_bound"] and "at least" in found["summary"]
    assert any("measure larger loads" in note for note in found["notes"])


@pytest.mark.parametrize(("waited", "is_misjudged"), [(1.8, False), (0.6, False), (0.2, True)])
def test_a_trace_far_faster_than_full_speed_gives_a_lower_bound(
    make_store: MakeStore, tmp_path: Path, waited: float, is_misjudged: bool
) -> None:
    """1800 reads need 1.8 s one after the other at full speed."""
    columns = ["pattern", "nbytes", "is_aligned", "depth", "is_sync", "accesses", "waiting_seconds"]
    demands = {"columns": columns, "rows": [["randread", 4096.0, True, 1.0, None, 1800, waited]]}
    path = write_profile(tmp_path, "reader", {"read": {"4K": 1800}, "write": {}}, seconds=60)
    document = {
        **json.loads(path.read_text()),
        "schema_version": 2,
        "demands": demands,
        "idle_seconds": 60 - waited,
    }
    path.write_text(json.dumps(document))
    found = plan(path, "--baselines", make_store(), "--p99-ms", 20)
    for pool in ("A", "fast"):
        assert of(found, pool)["is_bound"] is is_misjudged
        assert (of(found, pool, "reader")["sustainable_per_s"]["high"] is None) is is_misjudged
    assert any("took 11 % of the time" in note for note in found["notes"]) is is_misjudged


def test_a_pool_above_the_limit_at_its_smallest_load_serves_none(make_store: MakeStore, writer: Path) -> None:
    # With one in flight, writes take an exponential time: ln(100) / 400, or 11.5 ms.
    found = plan(writer, "--baselines", make_store(), "--p99-ms", 11)
    assert of(found, "A")["headroom"]["IOPS"] == {"value": 0, "low": 0, "high": 0} and not found["ok"]
    assert of(found, "A")["certain"], "no load is smaller than one I/O in flight"
    assert of(found, "A", "writer")["share"] is None and of(found, "A", "writer")["vms_alone"]["value"] == 0
    assert of(found, "fast")["fits"]
    assert any("not even 1 in flight" in note for note in found["notes"])


def test_the_busiest_minute_can_be_planned_for(make_store: MakeStore, tmp_path: Path) -> None:
    accesses = {"read": {"4K": 1800}, "write": {}}
    path = write_profile(tmp_path, "peaks", accesses, seconds=60, busiest={"second": 400, "minute": 90.0})
    for demand, rate in (("mean", 30), ("busiest-minute", 90), ("busiest-second", 400)):
        found = plan(path, "--baselines", make_store(), "--demand", demand)
        assert of(found, "A", "peaks")["demand_per_s"] == pytest.approx(rate)


def test_csv_and_page_have_the_same_figures(
    make_store: MakeStore, reader: Path, writer: Path, tmp_path: Path
) -> None:
    table, page = tmp_path / "t.csv", tmp_path / "p.html"
    asked = (reader, writer, "--baselines", make_store(noise=0.02), "--p99-ms", 50, "--growth", "5%/month")
    found = plan(*asked, "--csv", table, "--report", page)
    rows = list(csv.DictReader(table.open()))
    assert [(r["pool"], r["class"]) for r in rows] == [(p, c) for p in ("A", "fast") for c in ("reader", "writer")]
    assert float(rows[0]["headroom"]) == of(found, "A")["headroom"][of(found, "A")["scarcest"]]["value"]
    assert float(rows[1]["more_vms"]) == of(found, "A", "writer")["more_vms"]["value"]
    html = page.read_text()
    assert "<script" not in html and "http" not in html.replace("http-equiv", "")
    assert html.count("<polyline") == 2 and "<polygon" in html and 'name="viewport"' in html
    assert found["summary"].replace("<=", "&lt;=") in html


def test_names_in_the_data_are_escaped_on_the_page(make_store: MakeStore, tmp_path: Path) -> None:
    path = write_profile(tmp_path, "x", {"read": {"4K": 1800}, "write": {}}, seconds=60)
    path.write_text(path.read_text().replace('"x"', '"<b>x</b>"'))
    call(path, "--baselines", make_store(), "--report", tmp_path / "p.html")
    assert "<b>x" not in (tmp_path / "p.html").read_text()


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (
            ("--p99-ms", "0.5"),
            "no pool reaches the latency limit for reader: with 1 I/O in flight, the lowest 99th",
        ),
        (("--mean-ms", "0.01"), "the lowest mean is 0.111 ms on fast"),
        (("--growth", "0%/month"), "a growth of 0 % never fills a pool"),
        (("--growth", "-3%/month"), "a growth of -3 % never fills a pool"),
        (("--growth", "fast"), "'fast' is not a growth"),
        (("--pool", "gold"), "there are no baselines of pool 'gold'"),
        (("--pool-space", "gold=1T"), "nothing is called 'gold'"),
        (("--space", "redaer=1G"), "nothing is called 'redaer'"),
        (("--space", "reader=0"), "a space of 0 bytes is none"),
        (("--rate", "reader=nan"), "'nan' is not a rate above 0"),
        (("--rate", "reader=1e30"), "'1e30' is not a rate above 0 and up to 1e+12"),
        (("--clients-from", "reader"), "'reader' is not NAME=VALUE"),
        (("--clients-from", "reader=1,reader=2"), "reader is given twice"),
        (("--clients-from", "reader=-1"), "'-1' is not a number of virtual machines"),
        (("--clients-from", f"reader={'9' * 5000}"), "is not a number of virtual machines"),
        (("--clients-from", "reader=0"), "the fleet has no virtual machine"),
        (("--demand", "busiest-minute"), "does not tell the rate of its busiest minute"),
        (("--warn-below", "120%"), "'120%' is not a share"),
        (("--within", "3"), "--within needs --growth"),
        (("--space", "reader=10G"), "--space and --pool-space need each other"),
        (("--pool-space", "A=1T"), "--space and --pool-space need each other"),
        (("--demand", "busiest-minute", "--rate", "reader=5"), "--demand busiest-minute has no effect"),
        (("--clients-from", "reader=1e9"), "a whole number, such as reader=12"),
        (("--csv", "nowhere/x.csv"), "give another path with --csv"),
    ],
)
def test_wrong_input_is_refused_with_its_reason(
    make_store: MakeStore, reader: Path, more: tuple[str, ...], what: str
) -> None:
    done = CliRunner().invoke(cephfit, ["capacity", str(reader), "--baselines", str(make_store()), *more])
    assert done.exit_code != 0 and "headroom" not in done.output
    assert what in (str(done.exception) + done.output)
    assert isinstance(done.exception, InputError) or done.exit_code == 2


def test_a_profile_without_a_duration_needs_a_rate(make_store: MakeStore, tmp_path: Path) -> None:
    path = write_profile(tmp_path, "timeless", {"read": {"4K": 1800}, "write": {}}, seconds=None)
    done = call(path, "--baselines", make_store())
    assert isinstance(done.exception, InputError)
    assert "no duration" in done.exception.what and "--rate timeless=N" in done.exception.remedy
    found = plan(path, "--baselines", make_store(), "--rate", "timeless=12.5")
    assert of(found, "A", "timeless")["demand_per_s"] == 12.5


def test_two_profiles_of_one_name_and_a_csv_are_refused(make_store: MakeStore, reader: Path) -> None:
    done = call(reader, reader, "--baselines", make_store())
    assert "another profile is called 'reader' too" in str(done.exception)
    done = call(reader, "--baselines", "docs/examples/ranks-differ.csv")
    assert "has no latencies" in str(done.exception)


def test_samples_without_percentiles_need_a_limit_of_the_mean(make_store: MakeStore, reader: Path) -> None:
    store = make_store(percentiles=())
    assert "no 99th percentile" in str(call(reader, "--baselines", store).exception)
    found = plan(reader, "--baselines", store, "--mean-ms", 5)
    assert of(found, "A", "reader")["sustainable_per_s"]["value"] == pytest.approx(800, rel=1e-4)


def test_the_capacity_sweep_on_the_simulated_cluster_finds_its_true_rates(tmp_path: Path) -> None:
    """Two pools, three mixes and two limits: the true rates of the simulation give the true answer."""
    store = tmp_path / "sim.sqlite"
    text = Path("sweeps/capacity.yaml").read_text().replace("[4K, 32K, 128K, 1M, 32M]", "[4K]")
    text = text.replace("[4K, 32K, 128K, 1M]", "[4K]").replace("[4K, 32K, 128K]", "[4K]")
    text = text.replace("patterns: [read, write, randread, randwrite]", "patterns: [randread, randwrite]")
    text = "\n".join(line for line in text.splitlines() if "unaligned" not in line and "flushed" not in line)
    sweep_file = tmp_path / "small.yaml"
    sweep_file.write_text(text)
    done = CliRunner().invoke(
        cephfit, ["sweep", "run", str(sweep_file), "--target", "sim:seed=5,noise=0.02", "--store", str(store)]
    )
    assert done.exit_code == 0, done.output
    for configuration in parse_sweep(text, file="small.yaml").configurations:
        for reads in (0, 600, 1200):
            accesses = {"read": {"4K": reads}, "write": {"4K": 1200 - reads}}
            mixed = write_profile(tmp_path, f"reads-{reads}", accesses, seconds=60)
            times = [_true_seconds(configuration, reads / 1200, n) for n in range(1, 400)]
            for factor in (1.8, 4.0):
                limit = factor * times[0]
                found = plan(mixed, "--baselines", store, "--mean-ms", 1000 * limit)
                rate = of(found, configuration.name, mixed.stem)["sustainable_per_s"]
                true = brentq(partial(_excess_seconds, times, limit), 0.1 / times[0], 0.99 * 399 / times[-1])
                assert rate["value"] == pytest.approx(true, rel=0.05)
                assert rate["low"] <= true <= (rate["high"] or math.inf)


def _true_seconds(configuration: Configuration, reads: float, n: int) -> float:
    """The time of an access of the mix with n in flight."""
    shares = {Pattern.RANDREAD: reads, Pattern.RANDWRITE: 1 - reads}
    return math.fsum(
        share / iops(configuration, Access(4096, pattern, 1, 0, ""), n_clients=n, window_seconds=(0.3, 1.5))
        for pattern, share in shares.items()
    )


def _excess_seconds(times: Sequence[float], limit: float, arrivals: float) -> float:
    """The mean latency of random arrivals (the mean number there over the arrivals per second) above a limit."""
    weights = np.exp(np.concatenate([[0.0], np.cumsum(np.log(arrivals * np.array(times) / np.arange(1, 400)))]))
    return float(weights @ np.arange(400) / weights.sum()) / arrivals - limit


def test_a_lower_bound_below_the_demand_leaves_the_answer_open(
    make_store: MakeStore, reader: Path, tmp_path: Path
) -> None:
    """The queue serves 1000 accesses a second with up to 4 in flight; with more, 1200 may fit."""
    store = make_store(levels={"": (1, 1), "c4": (4, 1)})
    done = call(reader, "--baselines", store, "--p99-ms", 1000, "--clients-from", "reader=40", "--pool", "A")
    assert done.exit_code == 1
    assert done.stdout.startswith("unknown: 40 VMs on A at p99 <= 1000 ms: headroom at least 0.833 times")
    assert "so it may fit: measure larger loads" in done.stdout.splitlines()[0]
    call(
        reader, "--baselines", store, "--p99-ms", 1000, "--clients-from", "reader=40", "--csv", tmp_path / "t.csv"
    )
    assert [row["fits"] for row in csv.DictReader((tmp_path / "t.csv").open())] == ["unknown", "true"]


def test_a_bandwidth_measured_with_other_accesses_is_no_lower_bound() -> None:
    found = {IOPS: Estimate(0.08, 0.07, math.inf), BANDWIDTH: Estimate(0.5, 0.5, 0.5)}
    pool = PoolCapacity("A", (), found, {}, True, ())
    asked = PlanInput((), Limit(0.02), 0.95)
    assert not pool.is_unknown
    text = summary_of([pool], asked, date(2026, 1, 1))
    assert text.startswith("does not fit") and text.endswith("by IOPS, 0.5 times by bandwidth")


def test_figures_are_plain_digits() -> None:
    assert [plain_figure(v) for v in (1040.2, 8.4231, 0.08431, 0.0000123, 2013.0)] == [
        "1,040",
        "8.42",
        "0.0843",
        "0.0000123",
        "2,010",
    ]


def test_shares_of_a_lower_bound_are_upper_bounds(make_store: MakeStore, reader: Path, tmp_path: Path) -> None:
    store, table, page = make_store(levels={"": (1, 1), "c4": (4, 1)}), tmp_path / "t.csv", tmp_path / "p.html"
    done = call(reader, "--baselines", store, "--p99-ms", 1000, "--csv", table, "--report", page)
    assert "<= 3 %" in done.stdout, "30 of 1000 accesses a second"
    assert [row["share_is_bound"] for row in csv.DictReader(table.open())] == ["true", "true"]
    assert "at most 3.0 %" in page.read_text()
    assert "at least 32</td>" in page.read_text(), "virtual machines are whole"


def test_growth_without_a_period_is_noted(make_store: MakeStore, reader: Path) -> None:
    store = make_store()
    assert "taken as per month" in " ".join(plan(reader, "--baselines", store, "--growth", "5%")["notes"])
    printed = call(reader, "--baselines", store, "--growth", "5%/month").stdout
    assert "taken as per month" not in printed and "months)" in printed


def test_the_months_of_a_lower_bound_are_a_lower_bound(
    make_store: MakeStore, reader: Path, tmp_path: Path
) -> None:
    store = make_store(levels={"": (1, 1), "c4": (4, 1)})
    table = tmp_path / "capacity.csv"
    page = tmp_path / "capacity.html"
    growth = ("--growth", "5%/month", "--report", page)
    done = call(reader, "--baselines", store, "--p99-ms", 1000, *growth, "--csv", table)
    assert re.search(r"headroom at least [\d,.]+ .*, full in at least [\d.]+", page.read_text())
    assert "; full in at least " in done.stdout.splitlines()[0]
    row = next(csv.DictReader(table.open()))
    assert row["scarcest"] == "IOPS" and row["full_is_bound"] == "true"
    assert row["months_by_iops"] == row["months_until_full"]
    assert float(row["months_by_bandwidth"]) > float(row["months_by_iops"]) and row["months_by_space"] == ""
    space = ("--space", "reader=10G", "--pool-space", "A=15G")
    done = call(reader, "--baselines", store, "--p99-ms", 1000, "--growth", "5%/month", "--csv", table, *space)
    assert "; full in 8.31 months" in done.stdout.splitlines()[0]
    assert next(csv.DictReader(table.open()))["full_is_bound"] == "false"


def test_the_reason_of_an_unknown_is_the_smallest_load_where_that_exceeds_the_limit(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Its trace was far faster than full speed, so the pool may serve it; its bursts are not the reason."""
    columns = ["pattern", "nbytes", "is_aligned", "depth", "is_sync", "accesses", "waiting_seconds"]
    demands = {"columns": columns, "rows": [["randwrite", 4096.0, True, 1.0, None, 1800, 0.2]]}
    path = write_profile(tmp_path, "writer", {"read": {}, "write": {"4K": 1800}}, seconds=60)
    document = {**json.loads(path.read_text()), "schema_version": 2, "demands": demands, "idle_seconds": 59.8}
    path.write_text(json.dumps(document))
    done = call(path, "--baselines", make_store(), "--p99-ms", 11)
    first = done.stdout.splitlines()[0]
    assert done.exit_code == 1
    assert first.startswith("unknown: 1 VM on A at p99 <= 11 ms: writer exceeds the limit at the smallest")
