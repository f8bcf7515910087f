"""New volumes in each round: their luck is part of the spread, also after a kill, and on a real cluster."""

from math import log
from statistics import stdev

import pytest

from cephfit.core.errors import InputError
from cephfit.core.protocols import NullProgress
from cephfit.core.values.measurement import ASSUMED_TIMES
from cephfit.core.values.sample import State
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.runner import run_sweep
from cephfit.sweep.proposal import as_yaml
from cephfit.sweep.sweep_plan import Sweep, expected_seconds, plan_of
from cephfit.targets.simulated import SimulatedTarget, Simulation

NEW = "  new_volumes: true\n"


def with_new(text: str, repeats: int = 2) -> Sweep:
    return parse_sweep(text.replace("repeats: 2", f"repeats: {repeats}") + NEW, file="small.yaml")


def spread_between_rounds(sweep: Sweep, store: Store) -> float:
    """The standard deviation of the logarithm of the default's rates in one cell."""
    target = SimulatedTarget(Simulation(noise=0.001, placement=0.2))
    run = run_sweep(sweep, target, store, NullProgress(), resume=None)
    cell = sweep.measurement.cells[0]
    rates = [
        s.metrics.iops
        for s in store.samples(run.run_id)
        if (s.key.configuration, s.key.client, s.key.cell) == ("A", "c0", cell) and s.metrics is not None
    ]
    assert len(rates) == sweep.measurement.repeats
    return stdev(map(log, rates))


def test_the_luck_of_volumes_shows_as_spread(small_text: str, store: Store) -> None:
    kept = parse_sweep(small_text.replace("repeats: 2", "repeats: 12"), file="small.yaml")
    assert spread_between_rounds(kept, store) < 0.01
    assert 0.1 < spread_between_rounds(with_new(small_text, repeats=12), store) < 0.4


class KilledError(Exception):
    """Stands for a kill."""


class DiesIn(SimulatedTarget):
    """Ends with an exception at an application; counts resets."""

    def __init__(self, application: int) -> None:
        super().__init__()
        self.left = application
        self.n_reset = 0

    def reset(self) -> None:
        self.n_reset += 1
        super().reset()

    def apply(self, *arguments: object, **named: object) -> object:  # type: ignore[override]
        self.left -= 1
        if self.left == 0:
            raise KilledError
        return super().apply(*arguments, **named)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("application", "resets"),
    [
        (3, (0, 1)),  # in the first round: the second start begins the second round
        (4, (1, 1)),  # at the begin of the second round, before its first sample: its volumes may be of the first
        (5, (1, 0)),  # within the second round, whose volumes stay
    ],
)
def test_a_round_begins_with_new_volumes_once(
    small_text: str, store: Store, application: int, resets: tuple[int, int]
) -> None:
    sweep, killed = with_new(small_text), DiesIn(application)
    with pytest.raises(KilledError):
        run_sweep(sweep, killed, store, NullProgress(), resume=None)
    (begun,) = store.runs()
    again = DiesIn(100)
    run = run_sweep(sweep, again, store, NullProgress(), resume=begun)
    assert (killed.n_reset, again.n_reset) == resets
    assert all(s.state is State.OK for s in store.samples(run.run_id))


def test_the_plan_has_the_time_to_fill_them_and_a_proposal_keeps_the_key(small_text: str) -> None:
    kept, new = parse_sweep(small_text, file="small.yaml"), with_new(small_text)
    assert new.digest != kept.digest
    fill = len(kept.configurations) * kept.measurement.most_clients * kept.measurement.volume_nbytes
    more = expected_seconds(new, plan_of(new)) - expected_seconds(kept, plan_of(kept))
    assert more == pytest.approx(fill / ASSUMED_TIMES.fill_nbytes_per_s)
    assert NEW in as_yaml(new.measurement)


def test_another_word_than_true_or_false_is_refused(small_text: str) -> None:
    with pytest.raises(InputError, match="new_volumes"):
        parse_sweep(small_text + "  new_volumes: sometimes\n", file="small.yaml")
