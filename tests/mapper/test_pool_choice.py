"""Which pool a workload should have: by intervals first, by price where they leave a choice."""

from hypothesis import given
from hypothesis import strategies as st

from cephfit.mapper.pool_choice import PoolChoice, Standing, choose_pool
from cephfit.prediction import Prediction, PredictionSet, Verdict


def predicted(**pools: tuple[float, float, float]) -> PredictionSet:
    rows = [Prediction(name, mid, low, high, Verdict.BETTER) for name, (low, mid, high) in pools.items()]
    rows.sort(key=lambda p: -p.relative)
    return PredictionSet("time", "mail", "store", tuple(rows), rows[0].configuration, "hdd", 0.95, 5.0)


def standings(choice: PoolChoice) -> dict[str, Standing]:
    return {c.configuration: c.standing for c in choice.candidates}


def test_of_pools_that_cannot_be_told_apart_the_cheapest_is_chosen() -> None:
    predictions = predicted(ssd=(280, 300, 320), tiered=(270, 290, 310), hdd=(100, 100, 100))
    choice = choose_pool(predictions, {"ssd": 8.0, "tiered": 3.0, "hdd": 2.0})
    assert choice.chosen == "tiered"
    assert choice.why == "the cheapest of 2 that cannot be told from ssd"
    assert standings(choice) == {
        "ssd": Standing.AS_GOOD, "tiered": Standing.CHOSEN, "hdd": Standing.SLOWER,
    }  # fmt: skip


def test_a_pool_that_is_faster_for_certain_is_chosen_whatever_it_costs() -> None:
    choice = choose_pool(predicted(ssd=(280, 300, 320), hdd=(95, 100, 105)), {"ssd": 80.0, "hdd": 1.0})
    assert (choice.chosen, choice.why) == ("ssd", "faster than every other one")


def test_with_a_floor_the_whole_interval_must_be_above_it() -> None:
    predictions = predicted(ssd=(280, 300, 320), mixed=(150, 200, 250), coded=(90, 130, 170), hdd=(95, 100, 105))
    costs: dict[str, float | None] = {"ssd": 8.0, "mixed": 5.0, "coded": 1.5, "hdd": 2.0}
    choice = choose_pool(predictions, costs, at_least=120)
    assert choice.chosen == "mixed"
    assert standings(choice)["coded"] is Standing.UNSURE
    assert standings(choice)["hdd"] is Standing.SLOWER
    nobody = choose_pool(predictions, costs, at_least=400)
    assert nobody.chosen == ""
    assert nobody.why == "no pool reaches 400 for certain; ssd comes nearest with 300 (280 to 320)"


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
    good = [c for c in choice.candidates if c.standing in (Standing.CHOSEN, Standing.AS_GOOD)]
    assert bool(good) == bool(choice.chosen)
    assert all(pools[choice.chosen][1] <= pools[c.configuration][1] for c in good)
    if at_least is not None:
        assert all(c.low >= at_least for c in good)
    else:
        fastest = max(choice.candidates, key=lambda c: c.relative)
        assert fastest in good
        assert all(c.high < fastest.low for c in choice.candidates if c not in good)
