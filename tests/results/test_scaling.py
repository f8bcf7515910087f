"""Loads in the results: separated everywhere, and combined only for scaling."""

import math
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from example_run import RUN_ID, example_profile, example_run
from queue_samples import queue_samples
from scipy.special import gammaincinv

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Cell, LoadedCell, Pattern
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.results import open_baselines
from cephfit.results.report.render import to_html, to_markdown
from cephfit.results.report.report_build import read_findings, report_of
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.results.statistics.scaling import CLIENTS, IODEPTH, Curve, curves_of, levels_of
from cephfit.results.store.sample_store import Store, kind_of
from cephfit.results.tables import baseline_csv, sample_tables

CELL = Cell.parse("4K-randread")
LOADS = {"": (1, 1), "two": (1, 2), "four": (1, 4), "deep": (16, 1), "mixed": (1, 1)}
"""Name to iodepth and clients; ``mixed`` differs in something else and is on no curve."""


def truth(depth: int, clients: int) -> float:
    """Rate of all clients together: 100 IOPS for each I/O in flight until 400 are reached."""
    return min(100.0 * depth * clients, 400.0)


def samples(*, repeats: int = 3, noise: float = 0.02, names: tuple[str, ...] = ("A", "B")) -> list[list[Sample]]:
    """One list per fio run; B is twice as fast."""
    rng = random.Random(1)
    groups = []
    for repeat in range(repeats):
        for name in names:
            for load, (depth, clients) in LOADS.items():
                shape = {"iodepth": depth, "clients": clients, "read_pct": 70 if load == "mixed" else None}
                group = []
                for i in range(clients):
                    iops = (
                        truth(depth, clients) / clients * (2 if name == "B" else 1) * math.exp(rng.gauss(0, noise))
                    )
                    latency = depth / iops * 1e9
                    metrics = Metrics(
                        iops, iops * 4096, round(iops), 10**9, latency, {50.0: latency, 99.0: 3 * latency}
                    )
                    key = SampleKey(name, CELL, f"c{i}", repeat, load=load)
                    group.append(Sample(key, State.OK, metrics, 1, 2, "", {"load": shape, "cache": "cold"}))
                groups.append(group)
    return groups


def flat(groups: list[list[Sample]]) -> list[Sample]:
    return [sample for group in groups for sample in group]


def curve(along: str, name: str = "A") -> Curve:
    (found,) = (c for c in curves_of(flat(samples())) if c.along == along and c.configuration == name)
    return found


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "loads.sqlite"
    with Store.open(path, create=True) as store:
        store.add_run(example_run())
        for group in samples():
            store.add_samples(RUN_ID, group, fio_json=None)
    return path


def test_baselines_are_of_one_load() -> None:
    everything = flat(samples())
    own = baselines_of(everything, source="test")
    assert own.of("A", CELL).n_clients == 1
    assert len(own.of("A", CELL).iops) == 3
    assert own.source == "test"
    deep = baselines_of(everything, source="test", load="deep")
    assert sum(deep.of("A", CELL).iops) / 3 == pytest.approx(400, rel=0.05)
    assert deep.source == "test, load deep"
    with pytest.raises(InputError, match="two, four, deep, mixed"):
        baselines_of(everything, source="test", load="deeper")


def test_rate_and_latency_over_the_number_of_clients() -> None:
    found = curve(CLIENTS)
    assert [p.x for p in found.points] == [1, 2, 4]
    assert [p.load for p in found.points] == ["", "two", "four"]
    assert found.fixed == "1 I/O in flight per client"
    for point in found.points:
        assert point.iops.interval is not None and truth(1, point.x) in point.iops.interval
        assert point.latency_ns.interval is not None and 1e7 in point.latency_ns.interval
        assert point.gain.mean == pytest.approx(point.x, rel=0.06)
        assert point.p99_ns is not None and point.p99_ns.mean > 2.9 * point.latency_ns.mean
    assert found.points[0].gain.interval is None
    assert found.points[2].gain.interval is not None and 4 in found.points[2].gain.interval


def drifting(seed: int, *, repeats: int, drift: float = 0.10, noise: float = 0.01) -> list[Sample]:
    """A alone, one client, five depths of 100 IOPS each, in rounds that shift all of them."""
    rng = random.Random(seed)
    found = []
    for repeat in range(repeats):
        shift = rng.gauss(0, drift)
        for depth in (1, 2, 4, 8, 16):
            iops = 100 * math.exp(shift + rng.gauss(0, noise))
            load = "" if depth == 1 else f"d{depth}"
            metrics = Metrics(iops, iops * 4096, round(iops), 10**9, 1e9 / iops, {})
            shape = {"load": {"iodepth": depth, "clients": 1}, "cache": "cold"}
            key = SampleKey("A", CELL, "c0", repeat, load=load)
            found.append(Sample(key, State.OK, metrics, 1, 2, "", shape))
    return found


@pytest.mark.parametrize("repeats", [2, 3])
def test_a_rate_holds_the_truth_where_rounds_drift(repeats: int) -> None:
    """A round's shift is the same for all loads: counted as one of each, 79 to 85 of a hundred held it."""
    held = [
        100 in point.iops.interval
        for seed in range(150)
        for found in curves_of(drifting(seed, repeats=repeats))
        for point in found.points[:1]
    ]
    assert len(held) == 150
    assert sum(held) / 150 >= 0.93


def test_what_a_round_does_to_all_loads_cancels_in_the_gain() -> None:
    (calm,), (found,) = curves_of(drifting(1, repeats=3, drift=0.0)), curves_of(drifting(1, repeats=3))
    for one, other in zip(calm.points[1:], found.points[1:], strict=True):
        assert one.gain.interval is not None and other.gain.interval is not None
        assert other.gain.interval.high / other.gain.interval.low < 1.2
        assert other.iops.interval.high / other.iops.interval.low > 1.2
        assert 1.0 in other.gain.interval


def test_the_same_repeats_have_the_same_interval_on_every_curve() -> None:
    clients, depths = curve(CLIENTS), curve(IODEPTH)
    assert clients.points[0].load == depths.points[0].load == ""
    assert clients.points[0].iops == depths.points[0].iops
    assert clients.points[0].latency_ns == depths.points[0].latency_ns


def test_over_the_depth_the_latency_shows_where_the_disks_are_full() -> None:
    found = curve(IODEPTH)
    assert [p.x for p in found.points] == [1, 16]
    assert found.points[1].iops.mean == pytest.approx(400, rel=0.05), "not 1600"
    assert found.points[1].latency_ns.mean == pytest.approx(16 / 400 * 1e9, rel=0.05)


def test_a_repeat_without_all_its_clients_is_on_no_curve() -> None:
    everything = flat(samples(names=("A",)))
    torn = [s for s in everything if not (s.key.load == "four" and s.key.client == "c3" and s.key.repeat == 1)]
    (found,) = (c for c in curves_of(torn) if c.along == CLIENTS)
    assert [p.n_repeats for p in found.points] == [3, 3, 2]
    assert found.points[2].iops.mean == pytest.approx(400, rel=0.05), "three clients would give 300"


def test_the_csv_of_samples_is_read_back_one_load_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    path.write_text(sample_tables.samples_csv(flat(samples())))
    assert open_baselines(path).of("A", CELL).iops == baselines_of(flat(samples()), source="x").of("A", CELL).iops
    assert open_baselines(path, load="four").of("A", CELL).n_clients == 4
    with pytest.raises(InputError, match=r"(?s)no rows of load nine.*two"):
        baseline_csv.read(path, load="nine")


def test_the_report_shows_how_it_scales_and_is_about_one_load(stored: Path) -> None:
    with Store.open(stored) as store:
        own, deep = (report_of(read_findings(store, load=load), made_ns=0) for load in ("", "deep"))
        with pytest.raises(InputError, match="nothing was measured"):
            read_findings(store, load="nine")
    assert [(s.cell, s.along) for s in own.scaling] == [("4K-randread", "clients"), ("4K-randread", "iodepth")]
    assert own.scaling == deep.scaling, "it is about all loads"
    assert (own.load, deep.load) == ("the measurement's own load", "load deep")
    assert own.heat_map is not None and deep.heat_map is not None
    assert float(own.heat_map.default_iops[0]) == pytest.approx(100, rel=0.05)
    assert float(deep.heat_map.default_iops[0]) == pytest.approx(400, rel=0.05)
    page = to_html(own)
    assert "How it scales" in page
    assert page.count('<figure class="scaling">') == 4
    places = [float(p) for p in re.findall(r'<circle cx="([0-9.]+)%"', page)]
    assert places and all(0 <= p <= 100 for p in places)
    markdown = to_markdown(own)
    row = next(line for line in markdown.splitlines() if line.startswith("| A | 4 |"))
    assert float(row.split("|")[4]) == pytest.approx(400, rel=0.05)


def test_what_was_concluded_from_one_load_is_not_shown_of_another(stored: Path) -> None:
    with Store.open(stored) as store:
        store.put_document(RUN_ID, kind_of("profile", "deep"), example_profile().to_json())
        assert read_findings(store, load="deep").profile == example_profile()
        assert read_findings(store).profile is None


def test_a_run_without_loads_has_no_such_section(finished_store: Path) -> None:
    with Store.open(finished_store) as store:
        report = report_of(read_findings(store), made_ns=0)
    assert report.scaling == ()
    assert report.load == ""
    assert "How it scales" not in to_html(report)


KIND = LoadedCell.measured(4096, Pattern.RANDREAD)


def test_the_clients_of_a_load_are_added_and_their_latencies_pooled() -> None:
    levels = levels_of(queue_samples({"A": {"4K-randread": 1000.0}}, repeats=2))
    assert {n for _, _, n in levels.figures} == {1, 2, 4, 8, 32, 128}
    found = levels.figures["A", KIND, 8]
    assert sorted(found) == [0, 1]
    assert found[0].iops == pytest.approx(1000)
    p99 = found[0].quantiles_ns[levels.percentiles.index(99.0)]
    assert p99 == pytest.approx(1e9 * gammaincinv(8, 0.99) / 1000, rel=1e-4), "the sum of eight services"


def test_of_loads_with_as_many_in_flight_the_one_with_more_clients_counts() -> None:
    deep = list(queue_samples({"A": {"4K-randread": 900.0}}, levels={"deep": (1, 8)}))
    wide = list(queue_samples({"A": {"4K-randread": 1000.0}}, levels={"wide": (8, 1)}))
    for samples in (deep + wide, wide + deep):
        figures = levels_of(samples).figures["A", KIND, 8]
        assert figures[0].iops == pytest.approx(1000)


def test_limited_and_mixed_loads_and_failed_repeats_do_not_count() -> None:
    samples = list(queue_samples({"A": {"4K-randread": 1000.0}}, levels={"": (1, 1), "c2": (2, 1)}, repeats=2))
    changed = []
    for sample in samples:
        if sample.key.load == "c2":
            limited = {"load": {**sample.evidence["load"], "rate_iops": 20}}
            sample = replace(sample, evidence=limited)
        elif sample.key.repeat == 1:
            sample = replace(sample, state=State.FAILED, reason="no result", metrics=None)
        changed.append(sample)
    levels = levels_of(changed)
    assert set(levels.figures) == {("A", KIND, 1)}
    assert set(levels.figures["A", KIND, 1]) == {0}


def test_only_percentiles_that_all_samples_have_are_used() -> None:
    one = list(queue_samples({"A": {"4K-randread": 1000.0}}, percentiles=(50.0, 99.0)))
    other = list(queue_samples({"B": {"4K-randread": 1000.0}}, percentiles=(50.0, 90.0, 99.0)))
    none = list(queue_samples({"C": {"4K-randread": 1000.0}}, percentiles=()))
    assert levels_of(one + other).percentiles == (50.0, 99.0)
    assert levels_of(one + none).percentiles == ()
