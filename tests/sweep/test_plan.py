"""The order of runs: every run once, interleaved, and the same from the same seed."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cephfit.core.values.cells import CELLS
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration
from cephfit.core.values.measurement import ASSUMED_TIMES, CacheCondition, Load, Measurement
from cephfit.sweep.execution.rounds import full_plan
from cephfit.sweep.factorial_design import Design, DesignKind, Sampler, Search
from cephfit.sweep.sweep_plan import Sweep, expected_seconds, io_seed, n_planned_samples, plan_of


def a_sweep(n_configurations: int, n_cells: int, repeats: int, seed: int) -> Sweep:
    measurement = Measurement(
        CELLS[:n_cells], 2, 1 << 25, repeats, 0.5, 2.0, "libaio", 4, True, CacheCondition.COLD, seed
    )
    configurations = tuple(Configuration(f"k{i}") for i in range(n_configurations))
    return Sweep("s", "", configurations, measurement, (), "", "")


SWEEPS = st.builds(a_sweep, st.integers(1, 8), st.integers(1, 20), st.integers(1, 5), st.integers(0, 2**40))


LOADS = st.builds(
    Load,
    st.just("deep"),
    n_clients=st.none() | st.integers(1, 9),
    cells=st.none() | st.lists(st.sampled_from(CELLS), min_size=1, unique=True).map(tuple),
)


@settings(deadline=None)
@given(SWEEPS, st.none() | LOADS, st.none() | st.tuples(st.integers(1, 9), st.integers(1, 4)))
def test_the_samples_of_the_full_plan_are_counted_without_it(
    sweep: Sweep, load: Load | None, trials: tuple[int, int] | None
) -> None:
    if load is not None:
        sweep = replace(sweep, measurement=replace(sweep.measurement, loads=(load,)))
    if trials is not None:
        design = Design(DesignKind.OPTIMISE, "trial", (), ())
        search = Search(design, *trials, startup=1, seed=1, sampler=Sampler.TPE, cell=None, is_maximised=True)
        default = Configuration(DEFAULT_CONFIGURATION)
        sweep = replace(sweep, search=search, configurations=(default, *sweep.configurations))
    steps = full_plan(sweep).steps
    assert n_planned_samples(sweep) == sum(
        len(step.cells) * sweep.measurement.under(step.load).n_clients for step in steps
    )


@settings(deadline=None)  # how long it takes is the machine's business
@given(SWEEPS)
def test_every_run_is_in_the_plan_once(sweep: Sweep) -> None:
    runs = Counter((s.repeat, s.configuration, c) for s in plan_of(sweep).steps for c in s.cells)
    m = sweep.measurement
    assert set(runs.values()) == {1}
    assert len(runs) == m.repeats * len(sweep.configurations) * len(m.cells) == plan_of(sweep).n_runs


@settings(deadline=None)  # how long it takes is the machine's business
@given(SWEEPS)
def test_a_round_is_over_before_the_next_begins(sweep: Sweep) -> None:
    repeats = [s.repeat for s in plan_of(sweep).steps]
    assert repeats == sorted(repeats)
    for repeat in set(repeats):
        names = [s.configuration for s in plan_of(sweep).steps if s.repeat == repeat]
        assert sorted(names) == sorted(c.name for c in sweep.configurations)


@settings(deadline=None)  # how long it takes is the machine's business
@given(SWEEPS)
def test_the_plan_depends_on_the_seed_only(sweep: Sweep) -> None:
    turned = replace(sweep, configurations=sweep.configurations[::-1])
    assert plan_of(sweep) == plan_of(turned)


def test_orders_differ_between_rounds_and_seeds() -> None:
    plan = plan_of(a_sweep(6, 20, 4, 2017))
    orders = {tuple(s.configuration for s in plan.steps if s.repeat == r) for r in range(4)}
    assert len(orders) == 4
    assert len({s.cells for s in plan.steps}) == len(plan.steps)
    assert plan != plan_of(a_sweep(6, 20, 4, 2018))


def test_no_configuration_is_always_early() -> None:
    """Over many rounds the mean position of each of 5 configurations is the middle: 2 +- 4 standard errors."""
    n_rounds = 400
    plan = plan_of(a_sweep(5, 1, n_rounds, 1))
    places: dict[str, int] = Counter()
    for number, step in enumerate(plan.steps):
        places[step.configuration] += number % 5
    assert all(abs(total / n_rounds - 2) < 4 * 2**0.5 / n_rounds**0.5 for total in places.values())


def test_all_configurations_of_a_round_access_the_same_blocks() -> None:
    seeds = {io_seed(1, cell, repeat, client) for cell in CELLS for repeat in (0, 1) for client in ("c0", "c1")}
    assert len(seeds) == 80
    assert all(0 < seed < 2**62 for seed in seeds)


def test_the_expected_time_adds_up() -> None:
    """2 x 3 times 12 s to apply, 2 x 3 x 4 runs of (0.5 + 2 + 1) s, and 2 x 2 volumes of 32M at 100 MiB/s."""
    sweep = a_sweep(2, 4, 3, 1)
    assert expected_seconds(sweep, plan_of(sweep), ASSUMED_TIMES) == 6 * 12 + 24 * 3.5 + 4 * 32 / 100


def test_warming_volumes_before_each_run_adds_to_the_time() -> None:
    """As above, and before each of 24 runs 2 volumes of 32M at 100 MiB/s."""
    cold = a_sweep(2, 4, 3, 1)
    warm = replace(cold, measurement=replace(cold.measurement, cache=CacheCondition.WARM))
    more = expected_seconds(warm, plan_of(warm)) - expected_seconds(cold, plan_of(cold))
    assert more == pytest.approx(24 * 2 * 32 / 100)


def test_a_load_with_more_clients_reads_more_volumes() -> None:
    cold = a_sweep(1, 1, 1, 1)
    loads = (Load("many", n_clients=8),)
    warm = replace(cold, measurement=replace(cold.measurement, cache=CacheCondition.WARM, loads=loads))
    own = replace(warm, measurement=warm.measurement.under(""))
    without_reading = 0.5 + 2 + 1 + 6 * 32 / 100  # one run more, and six volumes more to fill
    more = expected_seconds(warm, plan_of(warm)) - expected_seconds(own, plan_of(own))
    assert more == pytest.approx(without_reading + 8 * 32 / 100)
