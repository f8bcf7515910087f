"""Sensitivity: whether the best changes under other assumptions, where it must and where it must not."""

from dataclasses import replace
from typing import Any

import pytest

from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, SIZE_BINS, LoadedCell, Op, Pattern
from cephfit.core.values.demand import Commits, Demand
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor
from cephfit.mapper.decisions.contrasts import ranked
from cephfit.mapper.decisions.sensitivity import (
    Sensitivity,
    Varied,
    at_other_thresholds,
    leaving_out,
    moved_most,
    of_phases,
    sensitivity_of,
)

SCATTER = (0.99, 1.0, 1.01)


def rates(factors: dict[str, dict[Pattern, float]], *, with_loads: bool = False) -> Baselines:
    """All cells; a configuration's rates are the default's times a factor by pattern, with a scatter of 1 %."""
    cells = {}
    for i, (name, factor) in enumerate({"A": {}, **factors}.items()):
        for j, cell in enumerate(CELLS):
            scatter = SCATTER[(i + j) % 3 :] + SCATTER[: (i + j) % 3]
            own = 100.0 * factor.get(cell.pattern, 1.0)
            cells[name, cell] = Baseline(name, cell, tuple(own * s for s in scatter))
    loaded = {(name, LoadedCell(cell.size.benchmark_nbytes, cell.pattern)): b for (name, cell), b in cells.items()}
    return Baselines(cells, "rates", loaded=loaded if with_loads else {})


def reads(random: float, *, description: dict[str, Any] | None = None, n: int = 1000) -> Profile:
    none = {b.name: 0 for b in SIZE_BINS}
    accesses = {Op.READ: {**none, "4K": n}, Op.WRITE: none}
    return Profile("w", accesses, {Op.READ: random, Op.WRITE: 0.0}, description=description or {})


ONE_FOR_EACH = rates({"streams": {Pattern.READ: 2.0}, "seeks": {Pattern.RANDREAD: 2.0}})


def sensitivity(profile: Profile, baselines: Baselines) -> Sensitivity:
    model = predictor("waiting")
    return sensitivity_of(model, profile, baselines, ranked(model, profile, baselines))


def best_by(found: Sensitivity, varied: Varied) -> dict[str, str]:
    return {v.name: p.best for v, p in found.predicted if v.varied is varied}


def test_the_best_changes_with_a_threshold_that_makes_random_reads_sequential() -> None:
    shares = {"read": {"8": 0.9, "128": 0.8, "4096": 0.1}}
    found = sensitivity(reads(0.8, description={"random_by_threshold": shares}), ONE_FOR_EACH)
    assert found.base.best == "seeks"
    assert best_by(found, Varied.THRESHOLD) == {"8 LBN": "seeks", "4096 LBN": "streams"}
    assert "streams with threshold 4096 LBN" in found.answer()
    n = len(found.predicted)
    assert found.answer().startswith(f"The best stays seeks in {n - 1} of {n} variations")


def test_thresholds_that_change_nothing_are_not_predicted() -> None:
    shares = {"read": {"64": 0.8, "128": 0.8, "256": 0.7999, "512": 0.5, "1024": 0.5}}
    profile = reads(0.8, description={"random_by_threshold": shares})
    assert [name for name, _ in at_other_thresholds(profile)] == ["512 LBN"]


@pytest.mark.parametrize(("other", "share"), [(0.2, 0.2), (0.95, 0.95)])
def test_at_another_threshold_the_shares_are_its_own_and_nothing_is_lost(other: float, share: float) -> None:
    profile = replace(
        reads(0.8, description={"random_by_threshold": {"read": {"128": 0.8, "999": other}}}),
        random_by_bin={Op.READ: {"4K": 0.8}, Op.WRITE: {}},
        demands=(
            Demand(Pattern.RANDREAD, 4096.0, True, 2.0, True, 800.0, 8.0),
            Demand(Pattern.READ, 4096.0, True, 1.0, True, 200.0, 1.0),
        ),
    )
    ((_, moved),) = at_other_thresholds(profile)
    assert moved.random[Op.READ] == pytest.approx(share)
    assert moved.random_by_bin is not None
    assert moved.random_by_bin[Op.READ]["4K"] == pytest.approx(share)
    assert moved.demands is not None
    random = sum(d.accesses for d in moved.demands if d.pattern is Pattern.RANDREAD)
    assert random == pytest.approx(1000 * share)
    assert sum(d.accesses for d in moved.demands) == pytest.approx(1000)
    assert sum(d.waiting_seconds or 0 for d in moved.demands) == pytest.approx(9.0)


def phase(n: int, random: float, seconds: float, share: float) -> dict[str, Any]:
    none = {b.name: 0 for b in SIZE_BINS}
    return {
        "seconds": seconds,
        "share_of_accesses": share,
        "accesses": {"read": {**none, "4K": n}, "write": none},
        "random": {"read": random, "write": 0.0},
        "random_by_bin": {"read": {"4K": random}, "write": {}},
    }


def test_the_best_of_a_phase_alone_may_be_another() -> None:
    phases = [phase(300, 0.0, 10, 0.3), phase(700, 1.0, 30, 0.7)]
    found = sensitivity(reads(0.7, description={"behaviour": {"phases": phases}}), ONE_FOR_EACH)
    assert found.base.best == "seeks"
    assert best_by(found, Varied.PHASE) == {
        "1 (30 % of the accesses)": "streams",
        "2 (70 % of the accesses)": "seeks",
    }


def test_the_demands_of_all_phases_add_up_to_those_of_the_workload() -> None:
    phases = [phase(300, 0.0, 10, 0.3), phase(700, 1.0, 30, 0.7)]
    whole = replace(
        reads(0.7, description={"behaviour": {"phases": phases}}),
        demands=(
            Demand(Pattern.RANDREAD, 4096.0, True, 2.0, True, 700.0, 8.0),
            Demand(Pattern.READ, 4096.0, True, 1.0, True, 300.0, 1.0),
        ),
        idle_seconds=4.0,
        commits=Commits(0),
    )
    (_, first), (_, second) = of_phases(whole)
    assert first.demands is not None
    assert second.demands is not None
    assert [(d.pattern, d.accesses, d.waiting_seconds) for d in (*first.demands, *second.demands)] == [
        (Pattern.READ, pytest.approx(300), pytest.approx(1.0)),
        (Pattern.RANDREAD, pytest.approx(700), pytest.approx(8.0)),
    ]
    assert (first.idle_seconds, second.idle_seconds) == (1.0, 3.0)


def test_a_single_phase_and_a_profile_without_details_say_so() -> None:
    single = sensitivity(
        reads(0.7, description={"behaviour": {"phases": [phase(1000, 0.7, 1, 1.0)]}}), ONE_FOR_EACH
    )
    assert "the workload has a single phase" in single.notes
    plain = sensitivity(reads(0.7), ONE_FOR_EACH)
    assert any("--describe full" in note for note in plain.notes)
    assert any("other thresholds" in note for note in plain.notes)


def test_the_best_changes_without_the_only_kind_that_shows_its_advantage() -> None:
    """`peak` is fast at 32K alone; from the neighbours' rates it is like the default, and `steady` is the best."""
    baselines = rates({"steady": {Pattern.RANDREAD: 1.5}, "peak": {}}, with_loads=True)
    kind = LoadedCell(32 * 1024, Pattern.RANDREAD)
    own = baselines.loaded["peak", kind]
    faster = replace(own, iops=tuple(4 * x for x in own.iops))
    baselines = replace(baselines, loaded={**baselines.loaded, ("peak", kind): faster})
    none = {b.name: 0 for b in SIZE_BINS}
    profile = Profile(
        "w",
        {Op.READ: {**none, "32K": 1000}, Op.WRITE: none},
        {Op.READ: 1.0, Op.WRITE: 0.0},
        demands=(Demand(Pattern.RANDREAD, 32 * 1024.0, True, 1.0, True, 1000.0, 10.0),),
        idle_seconds=0.0,
    )
    found = sensitivity(profile, baselines)
    bests = best_by(found, Varied.LEFT_OUT)
    assert found.base.best == "peak"
    assert bests.pop(str(kind)) == "steady"
    assert set(bests.values()) == {"peak"}
    assert f"steady with {kind} left out" in found.answer()
    assert moved_most(found.base, found.predicted[0][1])[1] > 0


def test_cells_that_the_workload_does_not_use_are_not_left_out() -> None:
    names = [name for name, _ in leaving_out(reads(1.0), ONE_FOR_EACH)]
    assert names == ["4K-randread"]
    patterns = {name.split("-")[1] for name, _ in leaving_out(reads(1.0), rates({}, with_loads=True))}
    assert patterns == {"randread"}


def test_what_cannot_be_predicted_is_named_with_the_reason() -> None:
    found = sensitivity(reads(1.0), ONE_FOR_EACH)
    (lost,) = [v for v in found.variations if v.predictions is None]
    assert str(lost) == "4K-randread left out"
    assert "4K-randread" in lost.why
    assert "unknown" in found.answer()
    assert found.to_json()["variations"][0]["why_not"] == lost.why


def test_a_change_among_equals_says_so() -> None:
    shares = {"read": {"128": 0.8, "4096": 0.1}}
    found = sensitivity(reads(0.8, description={"random_by_threshold": shares}), ONE_FOR_EACH)
    found = replace(found, base=replace(found.base, as_good=("streams",)))
    assert "streams (as good as seeks) with threshold 4096 LBN" in found.answer()
