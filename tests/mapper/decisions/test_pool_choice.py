"""The choice of a pool for a workload: first by significant differences, then by price."""

import math
from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_sweeps import TYPICAL_IOPS, Noise, baselines_of, draw, profiles

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS
from cephfit.core.values.prediction import Prediction, PredictionSet, Verdict
from cephfit.mapper import predictor
from cephfit.mapper.decisions.contrasts import worse_than
from cephfit.mapper.decisions.placement import PoolChoice, PoolStatus
from cephfit.mapper.decisions.placement import choose_pool as choose


def predicted(**pools: tuple[float, float, float]) -> PredictionSet:
    rows = [Prediction(name, mid, low, high, Verdict.BETTER) for name, (low, mid, high) in pools.items()]
    rows.sort(key=lambda p: -p.relative)
    return PredictionSet("time", "mail", "store", tuple(rows), rows[0].configuration, "hdd", 0.95, 5.0)


def choose_pool(
    predictions: PredictionSet,
    costs: dict[str, float | None],
    *,
    at_least: float | None = None,
    too_small: Collection[str] = (),
) -> PoolChoice:
    """Behind another is here whose interval lies below the other's."""

    def behind(name: str) -> frozenset[str]:
        low = predictions.of(name).low
        return frozenset(p.configuration for p in predictions.predictions if p.high < low)

    return choose(predictions, costs, behind, at_least=at_least, too_small=too_small)


def statuses(choice: PoolChoice) -> dict[str, PoolStatus]:
    return {c.configuration: c.status for c in choice.candidates}


def test_of_pools_that_cannot_be_told_apart_the_cheapest_is_chosen() -> None:
    predictions = predicted(ssd=(280, 300, 320), tiered=(270, 290, 310), hdd=(100, 100, 100))
    choice = choose_pool(predictions, {"ssd": 8.0, "tiered": 3.0, "hdd": 2.0})
    assert choice.chosen == "tiered"
    assert choice.why == "the cheapest of 2 that are not distinguishable from ssd"
    assert statuses(choice) == {
        "ssd": PoolStatus.AS_GOOD, "tiered": PoolStatus.CHOSEN, "hdd": PoolStatus.SLOWER,
    }  # fmt: skip


def test_pools_of_equal_cost_are_not_called_cheaper() -> None:
    """Without prices, two copies on any device class take as many bytes: the prediction decides."""
    choice = choose_pool(predicted(ssd=(90, 110, 130), hdd=(100, 100, 100)), {"ssd": 2.0, "hdd": 2.0})
    assert choice.chosen == "ssd"
    assert choice.why == "the highest prediction of 2 at the same cost that are not distinguishable from ssd"


def test_a_pool_that_is_faster_for_certain_is_chosen_whatever_it_costs() -> None:
    choice = choose_pool(predicted(ssd=(280, 300, 320), hdd=(95, 100, 105)), {"ssd": 80.0, "hdd": 1.0})
    assert (choice.chosen, choice.why) == ("ssd", "faster than every other one")


def test_a_single_pool_is_not_called_faster_than_others() -> None:
    choice = choose_pool(predicted(hdd=(100, 100, 100)), {"hdd": 2.0})
    assert (choice.chosen, choice.why) == ("hdd", "the only one to choose from")
    assert choose_pool(predicted(ssd=(280, 300, 320)), {"ssd": 8.0}, at_least=200).why.startswith(
        "the only one that"
    )


def test_pools_of_which_nothing_was_predicted_are_refused() -> None:
    with pytest.raises(InputError, match="nothing could be predicted for any of the pools"):
        choose_pool(predicted(ssd=(280, 300, 320)), {"coded": 8.0})


@pytest.mark.parametrize(("model", "chosen"), [("time", "fast"), ("meyer", "slow")])
def test_a_noisy_default_does_not_make_the_slower_pool_the_choice(model: str, chosen: str) -> None:
    """The default's noise is in both intervals against it, so that they overlap. In a direct comparison, fast
    is ahead of slow. Formula 2.1 has no such ratio and is conservative."""
    rng = np.random.default_rng(2)
    figures = {
        (name, cell): Baseline(name, cell, tuple(iops * speed * np.exp(rng.normal(0, scatter, 3))))
        for name, speed, scatter in (("A", 1, 0.2), ("slow", 2.0, 0.03), ("fast", 2.3, 0.03))
        for cell, iops in zip(CELLS, TYPICAL_IOPS, strict=True)
    }
    baselines, model_predictor, workload = Baselines(figures, "by hand"), predictor(model), profiles()[0]
    predictions = model_predictor.predict(workload, baselines)
    assert predictions.of("slow").high > predictions.of("fast").low, "the intervals overlap"
    behind = worse_than(model_predictor, workload, baselines, predictions)
    assert choose(predictions, {"A": 2.0, "slow": 3.0, "fast": 4.0}, behind).chosen == chosen
    assert behind("A") == frozenset(), "both are better than the default"
    assert behind("fast") == ({"A", "slow"} if model == "time" else {"A"})


def test_of_pools_that_are_equal_hardly_ever_is_one_told_behind_the_fastest() -> None:
    """The fastest is chosen by the same samples: at the level for a given one, 7 of 60 were slower."""
    rng = np.random.default_rng(5)
    truth, model_predictor, workload = np.tile(np.log(TYPICAL_IOPS), (7, 1)), predictor("time"), profiles()[0]
    slower = 0
    for _ in range(60):
        measured = baselines_of(np.exp(draw(rng, truth, Noise(uneven=math.log(1.5)), 3)))
        predictions = model_predictor.predict(workload, measured)
        fastest = predictions.predictions[0].configuration
        slower += bool(worse_than(model_predictor, workload, measured, predictions)(fastest))
    assert slower <= 3


def test_with_a_floor_the_whole_interval_must_be_above_it() -> None:
    predictions = predicted(ssd=(280, 300, 320), mixed=(150, 200, 250), coded=(90, 130, 170), hdd=(95, 100, 105))
    costs: dict[str, float | None] = {"ssd": 8.0, "mixed": 5.0, "coded": 1.5, "hdd": 2.0}
    choice = choose_pool(predictions, costs, at_least=120)
    assert choice.chosen == "mixed"
    assert statuses(choice)["coded"] is PoolStatus.UNSURE
    assert statuses(choice)["hdd"] is PoolStatus.SLOWER
    none = choose_pool(predictions, costs, at_least=400)
    assert none.chosen == ""
    assert none.why == "no pool certainly reaches 400; ssd comes closest with 300 (280 to 320)"


def test_without_all_prices_the_fastest_is_chosen_and_that_is_said() -> None:
    choice = choose_pool(predicted(ssd=(280, 300, 320), tiered=(270, 290, 310)), {"ssd": 8.0, "tiered": None})
    assert choice.chosen == "ssd"
    assert "not all prices are known" in choice.why


def test_only_what_may_compete_is_looked_at() -> None:
    choice = choose_pool(predicted(ssd=(280, 300, 320), tuned=(400, 410, 420)), {"ssd": 8.0})
    assert choice.chosen == "ssd"


intervals = st.tuples(st.floats(1, 500), st.floats(0, 100), st.floats(0, 100)).map(
    lambda t: (t[0], t[0] + t[1], t[0] + t[1] + t[2])
)


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(intervals, st.floats(0.1, 100)), min_size=1),
    st.none() | st.floats(1, 700),
)
def test_what_is_chosen_is_good_enough_and_nothing_cheaper_is(
    pools: dict[str, tuple[tuple[float, float, float], float]], at_least: float | None
) -> None:
    costs: dict[str, float | None] = {name: cost for name, (_, cost) in pools.items()}
    choice = choose_pool(predicted(**{n: i for n, (i, _) in pools.items()}), costs, at_least=at_least)
    good = [c for c in choice.candidates if c.status in (PoolStatus.CHOSEN, PoolStatus.AS_GOOD)]
    assert bool(good) == bool(choice.chosen)
    assert all(pools[choice.chosen][1] <= pools[c.configuration][1] for c in good)
    if at_least is not None:
        assert all(c.low >= at_least for c in good)
    else:
        fastest = max(choice.candidates, key=lambda c: c.relative)
        assert fastest in good
        assert all(c.high < fastest.low for c in choice.candidates if c not in good)


def test_a_pool_that_the_machines_do_not_fit_in_is_not_chosen_for_its_price() -> None:
    predictions = predicted(ssd=(86, 101, 118), tiered=(86, 100.5, 117), hdd=(100, 100, 100))
    costs: dict[str, float | None] = {"ssd": 16.0, "tiered": 4.0, "hdd": 3.0}
    assert choose_pool(predictions, costs).chosen == "hdd"
    choice = choose_pool(predictions, costs, too_small={"hdd"})
    assert choice.chosen == "tiered"
    assert statuses(choice) == {
        "ssd": PoolStatus.AS_GOOD, "tiered": PoolStatus.CHOSEN, "hdd": PoolStatus.TOO_SMALL,
    }  # fmt: skip
    assert choose_pool(predictions, costs, too_small={"hdd", "tiered"}).why.startswith("the only one that may")
    assert choose_pool(predictions, costs, too_small=set(costs)).chosen == "hdd", "the first line says it"
