"""Rate over time, phases, bursts and positions: found in traces whose truth is known."""

import copy
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from example_run import BIN_SECONDS, BURST_BINS, PHASE_BINS, example_behaviour, example_profile
from hypothesis import given, settings
from hypothesis import strategies as st

from cephfit.core.values.profile import Profile
from cephfit.core.values.supply import Estimate, Supply, SupplySet
from cephfit.results.report.figures.position_map import LEVELS, PositionMap, position_map
from cephfit.results.report.figures.rate_over_time import RateFigure, rate_figure, span_text
from cephfit.results.report.render import to_html, to_markdown
from cephfit.results.report.report_build import read_findings, report_of
from cephfit.results.store.sample_store import Store
from cephfit.traces import profile_files

READS, WRITES, BURST = 300.0, 800.0, 6000.0
"""Accesses per second: random reads for 20 s, then sequential writes for 20 s with a burst from 30 to 30.4 s."""
BURST_SECONDS = 0.4
HOT_MIB, ALL_MIB = 64, 4096
"""Nine of ten reads go to the first 64 MiB of 4 GiB."""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """A trace with Poisson arrivals, read as every trace is."""
    rng, lines, now, at = random.Random(19), [], 0.0, 0
    while now < 40:
        rate = READS if now < 20 else BURST if 30 <= now < 30 + BURST_SECONDS else WRITES
        now += rng.expovariate(rate)
        if rate == READS:
            mib = rng.randrange(HOT_MIB) if rng.random() < 0.9 else rng.randrange(ALL_MIB)
            lines.append(f"7,R,{(mib << 20) + 4096 * rng.randrange(256)},4096,{round(now * 1e6)}")
        else:
            at += 8192
            lines.append(f"7,W,{(2 << 30) + at},8192,{round(now * 1e6)}")
    path = tmp_path_factory.mktemp("traced") / "trace.csv"
    path.write_text("\n".join(lines) + "\n")
    return profile_files([path], full=True)


def rate_of(profile: Profile, supply: SupplySet | None = None, best: str = "") -> RateFigure:
    found = rate_figure(profile, supply, best)
    assert found is not None
    return found


def map_of(profile: Profile) -> PositionMap:
    found = position_map(profile)
    assert found is not None
    return found


def described(behaviour: Any) -> Profile:
    profile = example_profile()
    return replace(profile, description={**profile.description, "behaviour": behaviour})


def test_the_phases_and_the_burst_of_a_trace_are_found(traced: Profile) -> None:
    rate = rate_of(traced)
    assert sum(rate.totals) * rate.bin_seconds == pytest.approx(traced.n_accesses)
    first, second = rate.phases[0], rate.phases[-1]
    assert first.accesses_per_s == pytest.approx(READS, rel=0.1) and first.read_share == 1
    assert first.random_writes is None and first.random_reads == pytest.approx(1, abs=0.02)
    assert rate.phases[1].start_seconds == pytest.approx(20, abs=2 * rate.bin_seconds)
    assert second.read_share < 0.01, "the bin of the change has accesses of both"
    assert second.random_writes == pytest.approx(0, abs=0.01)
    (burst,) = rate.bursts
    assert burst.start_seconds == pytest.approx(30, abs=2 * rate.bin_seconds)
    assert burst.seconds == pytest.approx(BURST_SECONDS, abs=2 * rate.bin_seconds)
    assert BURST * 0.9 < burst.accesses_per_s < BURST * 1.3  # the busiest of its bins


def test_the_map_shows_where_the_accesses_of_a_trace_are(traced: Profile) -> None:
    found = map_of(traced)
    n_reads, n_all = 20 * READS, traced.n_accesses
    scattered = 0.1 * n_reads / len(found.bands)  # one in ten reads, over all bands
    assert found.bands[0][0] == "0 to 512 MiB" and found.bands[4][0].startswith("2 GiB to ")
    assert found.bands[0][1] == pytest.approx((0.9 * n_reads + scattered) / n_all, rel=0.05)
    assert found.bands[4][1] == pytest.approx((n_all - n_reads + scattered) / n_all, rel=0.05)
    assert sum(share for _, share in found.bands) == pytest.approx(1)
    half = len(found.levels[0]) // 2
    writes = [row[half + 2 :] for row in found.levels]
    touched = [any(row) for row in writes]
    assert touched.count(True) <= 3, "sequential writes stay in few regions"
    assert all(any(row[: half - 2]) for row in found.levels), "reads are everywhere in the first half"


def test_a_steady_rate_has_no_bursts() -> None:
    rng = random.Random(1)
    for rate in (0.2, 1.0, 7.0, 40.0, 900.0):
        counts = [0] * 500
        now = rng.expovariate(rate)
        while now < len(counts):
            counts[int(now)] += 1
            now += rng.expovariate(rate)
        behaviour: dict[str, Any] = example_behaviour()
        phase = {**behaviour["phases"][0], "start_seconds": 0.0, "seconds": 500.0, "iops": sum(counts) / 500}
        over = {"bin_seconds": 1.0, "start_seconds": 0.0, "reads": counts, "writes": [0] * 500}
        assert rate_of(described({"over_time": over, "phases": [phase]})).bursts == ()


def test_the_bursts_of_the_example_are_those_that_were_made() -> None:
    (burst,) = rate_of(example_profile()).bursts
    assert burst.start_seconds == BURST_BINS[0] * BIN_SECONDS
    assert burst.seconds == len(BURST_BINS) * BIN_SECONDS
    bins, reads, writes = PHASE_BINS[1]
    assert burst.accesses_per_s == 5 * (reads + writes)
    assert burst.times == pytest.approx(5 / (1 + 4 * len(BURST_BINS) / bins))  # over a mean that contains it


SECONDS = {"duration_seconds": 100.0, "busiest": {"second": 4000, "minute": 900}}


def served(**rates: float) -> SupplySet:
    supplies = tuple(Supply(name, Estimate(r, r, r), Estimate(r, r, r), 1) for name, r in rates.items())
    return SupplySet("pgbench", "a test", None, supplies, 0.95)


def test_what_is_served_is_compared_with_what_is_asked_for() -> None:
    """Phase 3 asks for 900/s in 30 of 100 s and the burst for 2300/s in 1 s: 750/s is too little in 31 %."""
    meaning = rate_of(example_profile(), served(A=750.0, hybrid=2500.0), "hybrid").meaning
    assert meaning == (
        "hybrid serves up to 2,500/s of this mix, more than the busiest stretch of 1 s asks for (2,300/s); A, "
        "the default, serves up to 750/s, less than is asked for in 31 % of the time."
    )
    alone = rate_of(example_profile(), served(A=750.0, hybrid=2500.0), "A").meaning
    assert alone == "A, the default, serves up to 750/s, less than is asked for in 31 % of the time."
    busy = replace(example_profile(), description={**example_profile().description, **SECONDS})
    assert "(2,300/s), less than the busiest second (4,000/s); A" in (
        rate_of(busy, served(A=750.0, hybrid=2500.0), "hybrid").meaning
    )
    far = rate_of(example_profile(), served(A=750.0, hybrid=1e6), "hybrid")
    assert [name for name, _ in far.drawn] == ["A"], "a line far above would compress the bars"


def test_without_a_supply_the_peak_is_compared_with_the_mean() -> None:
    mean = sum(b * (r + w) for b, r, w in PHASE_BINS) + 4 * len(BURST_BINS) * sum(PHASE_BINS[1][1:])
    mean /= sum(b for b, *_ in PHASE_BINS)
    rate = rate_of(example_profile())
    assert rate.mean == pytest.approx(mean)
    assert f"asks for {2300 / mean:.1f} times the mean rate" in rate.meaning
    behaviour: dict[str, Any] = example_behaviour()
    flat = {**behaviour["over_time"], "reads": [50] * 200, "writes": [0] * 200}
    assert "is steady" in rate_of(described({**behaviour, "over_time": flat})).meaning


def test_a_trace_of_less_than_a_second_is_compared_as_a_whole() -> None:
    behaviour: dict[str, Any] = example_behaviour()
    over = {"bin_seconds": 0.001, "start_seconds": 0.0, "reads": [10] * 200, "writes": [0] * 200}
    phase = {**behaviour["phases"][0], "start_seconds": 0.0, "seconds": 0.2, "iops": 10_000.0}
    short = described({**behaviour, "over_time": over, "phases": [phase]})
    assert "less than is asked for in 100 % of the time" in rate_of(short, served(A=9000.0)).meaning
    assert (
        "more than the busiest stretch of 0.2 s asks for (10,000/s)" in rate_of(short, served(A=11_000.0)).meaning
    )


def test_the_phases_say_what_the_prediction_is_about() -> None:
    assert "no phase has more than" in rate_of(example_profile()).mix.lower()
    behaviour: dict[str, Any] = example_behaviour()
    shares = (0.1, 0.2, 0.7)
    phases = [{**p, "share_of_accesses": s} for p, s in zip(behaviour["phases"], shares, strict=True)]
    assert rate_of(described({**behaviour, "phases": phases})).mix.startswith("Phase 3 has 70 % of the accesses")
    one = described({**behaviour, "phases": behaviour["phases"][:1]})
    assert rate_of(one).mix == ""


def test_the_areas_are_drawn_where_the_values_are() -> None:
    rate = rate_of(example_profile())
    tops = [float(y) for y in re.findall(r"V([\d.]+)H", rate.area(rate.totals))]
    assert len(tops) == len(rate.totals)
    for top, value in zip(tops, rate.totals, strict=True):
        assert 100 - top == pytest.approx(100 * value / rate.rate.high, abs=0.01)


EXAMPLE_MAP = map_of(example_profile())


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, LEVELS), min_size=5, max_size=5), min_size=1, max_size=6))
def test_the_squares_of_the_map_cover_their_fields_and_no_others(levels: list[list[int]]) -> None:
    found = replace(EXAMPLE_MAP, levels=tuple(map(tuple, levels)))
    for level in range(1, LEVELS + 1):
        covered = set()
        for x, y, n, back in re.findall(r"M(\d+) (\d+)h(\d+)v1H(\d+)z", found.squares(level)):
            assert back == x
            covered |= {(int(x) + i, len(levels) - 1 - int(y)) for i in range(int(n))}
        assert covered == {(x, y) for y, row in enumerate(levels) for x, n in enumerate(row) if n == level}


@pytest.mark.parametrize("most", [1, 2, 3, 10, 999])
def test_the_legend_names_the_shade_of_every_count(most: int) -> None:
    behaviour: dict[str, Any] = example_behaviour()
    counts = list(range(most + 1))
    behaviour["disks"]["sda"]["heat_map"] |= {"rows": [f"{n}" for n in counts][-128:], "region_nbytes": 4096}
    found = map_of(described(behaviour))
    for n, level in zip(counts[-128:], found.levels[0], strict=True):
        if n:
            low, _, high = found.legend[level - 1].replace(",", "").partition(" to ")
            assert int(low) <= n <= int(high or low)
        else:
            assert level == 0


def test_a_large_map_is_joined_without_losing_accesses() -> None:
    behaviour: dict[str, Any] = example_behaviour()
    rows = [" ".join("1" if place == 64 else "0" for place in range(65)) for _ in range(300)]
    behaviour["disks"]["sda"]["heat_map"] |= {"rows": rows}
    found = map_of(described(behaviour))
    assert len(found.levels[0]) == 100 and len(found.levels) == 22
    assert found.bands[-1][1] == 1 and sum(share for _, share in found.bands) == 1


@pytest.mark.parametrize(
    ("again", "share", "words"),
    [
        (0.6, 0.125, "80 % of the accesses go to 256 MiB of the 2 GiB that were touched: a cache or fast tier of"),
        (
            0.6,
            0.5,
            "80 % of the accesses spread over 1 GiB of the 2 GiB that were touched: only a cache or fast tier",
        ),
        (0.05, 0.5, "5.0 % of the block accesses go to blocks that were accessed before: caches gain little"),
    ],
)
def test_hot_spots_say_what_a_cache_gains(again: float, share: float, words: str) -> None:
    behaviour: dict[str, Any] = example_behaviour()
    disk = behaviour["disks"]["sda"]
    disk["footprint"]["reaccess_share"] = again
    disk["hot_spots"]["share_of_regions"]["accesses"]["80%"] = share
    assert map_of(described(behaviour)).meaning.startswith(words)


STRANGE: list[Any] = [None, [], {}, 3, {"over_time": None, "phases": [], "disks": {}}]


@pytest.mark.parametrize("strange", STRANGE)
def test_a_behaviour_that_cannot_be_read_is_left_out(strange: Any) -> None:
    assert rate_figure(described(strange)) is None
    assert position_map(described(strange)) is None


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("over_time", "bin_seconds"), 0),
        (("over_time", "bin_seconds"), float("inf")),
        (("over_time", "reads"), ["many"] * 200),
        (("over_time", "reads"), [1]),
        (("over_time", "reads"), [-1] * 200),
        (("over_time", "start_seconds"), "now"),
        (("phases",), [{}]),
        (("phases",), [3]),
        (("phases",), []),
    ],
)
def test_a_rate_that_cannot_be_read_is_left_out(place: tuple[str, ...], value: Any) -> None:
    behaviour: Any = copy.deepcopy(example_behaviour())
    part = behaviour
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    assert rate_figure(described(behaviour)) is None
    assert position_map(described(behaviour)) is not None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rows", []),
        ("rows", ["0 0"]),
        ("rows", ["1 2", "3"]),
        ("rows", ["1 x"]),
        ("rows", ["1 -2"]),
        ("rows", [""]),
        ("rows", 7),
        ("region_nbytes", -1),
        ("region_nbytes", None),
        ("first_lbn", "0"),
        ("bin_seconds", 0),
    ],
)
def test_a_map_that_cannot_be_read_is_left_out(key: str, value: Any) -> None:
    behaviour: Any = copy.deepcopy(example_behaviour())
    behaviour["disks"]["sda"]["heat_map"][key] = value
    assert position_map(described(behaviour)) is None
    assert rate_figure(described(behaviour)) is not None


def test_the_report_shows_them_with_text_for_readers_who_do_not_see(finished_store: Path) -> None:
    with Store.open(finished_store) as store:
        findings = read_findings(store)
    report = report_of(findings, made_ns=0)
    rate, positions = report.rate_over_time, report.positions
    assert rate is not None and positions is not None
    html, text = to_html(report), to_markdown(report)
    for shown in (rate.text, positions.text):
        assert f'role="img" aria-label="{shown}"' in html
    for sentence in (rate.meaning, rate.mix, positions.meaning):
        shown = re.sub("`([^`]+)`", r"<code>\1</code>", sentence)
        assert sentence and shown in html and sentence in text
    assert html.count('class="burst"') == 1 and "Times the mean of its phase" in html
    assert html.count("phase ") >= 2 and "| 2 | 20 s | 50 s |" in text
    bare = replace(findings, profile=replace(example_profile(), description={}))
    html = to_html(report_of(bare, made_ns=0))
    assert "The workload over time" not in html and 'class="over-time"' not in html
    assert "--describe full" not in html, "this profile is not from a trace"
    fast = replace(bare, profile=replace(example_profile(), description={"iops": 300.0}))
    assert "--describe full</code> adds them" in to_html(report_of(fast, made_ns=0))


def test_durations_are_short() -> None:
    assert [span_text(s) for s in (0.002, 1.0, 2.5, 20.0, 200.0)] == [
        "0.002 s",
        "1 s",
        "2.5 s",
        "20 s",
        "3 min 20 s",
    ]
