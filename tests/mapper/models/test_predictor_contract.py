"""What must hold for every implementation of ``Predictor``: one suite, run against every model.

The trivial predictors run the part of it that applies to them.
"""

import builtins
import copy
import io
import json
import math
import os
import random
import socket
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from cephfit.core.errors import InputError
from cephfit.core.protocols import Predictor
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Op
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE, LEARNED, PredictionSet, Verdict
from cephfit.core.values.profile import Profile
from cephfit.mapper import MODELS, predictor
from cephfit.mapper.assessment.learned_correction import Advantage, LearnedPredictor, Lesson, Slopes
from cephfit.mapper.assessment.model_evaluation import LeaveOut, assessed_predictor
from cephfit.mapper.assessment.trivial_predictors import AVERAGE_CELL, NEAREST_CELL, TRIVIAL
from cephfit.mapper.models.mix_predictor import MixPredictor
from cephfit.mapper.models.model_error import ModelError
from cephfit.mapper.models.question import Kind

FACTORS = {"A": 1.0, "slow": 0.7, "nearly": 1.002, "fast": 1.3, "mixed": 1.1}
ROUNDS = 3


LESSON = Lesson(
    Slopes(0.3, -0.1, ((1e-4, 0.0), (0.0, 1e-4))),
    ModelError(1e-4, 0.0),
    20,
    4,
    {what: Advantage(0.2, 0.1, 0.01) for what in LeaveOut},
)
"""Gains are larger than predicted, losses smaller; the error is so small that the same differences are found."""


def predictor_of(name: str) -> Predictor:
    """A model with its usual confidence; ``LEARNED`` has learned from runs without waiting times."""
    if name == LEARNED:
        return LearnedPredictor(MixPredictor("waiting"), {Kind("time", by_load=False, by_waiting=False): LESSON})
    return assessed_predictor(name, DEFAULT_CONFIDENCE)


@pytest.fixture(params=(*MODELS, LEARNED))
def model_predictor(request: pytest.FixtureRequest) -> Predictor:
    return predictor(request.param) if request.param in MODELS else predictor_of(request.param)


@pytest.fixture(params=(*MODELS, LEARNED, AVERAGE_CELL, NEAREST_CELL))
def ranking_predictor(request: pytest.FixtureRequest) -> Predictor:
    """The models and the trivial predictors that distinguish configurations."""
    return predictor_of(request.param)


@pytest.fixture(params=(*MODELS, LEARNED, *TRIVIAL))
def any_predictor(request: pytest.FixtureRequest) -> Predictor:
    return predictor_of(request.param)


def measured(factors: Mapping[str, float] = FACTORS, *, rounds: int = ROUNDS, times: float = 1.0) -> Baselines:
    """All cells; every repeat is a little off, by a fixed seed. ``mixed`` is faster in some cells only."""
    noise = random.Random(7)
    cells = {}
    for name, factor in factors.items():
        for number, cell in enumerate(CELLS):
            own = factor if name != "mixed" or number % 3 else 1 / factor
            iops = tuple(times * own * (100 + 10 * number) * noise.uniform(0.99, 1.01) for _ in range(rounds))
            cells[name, cell] = Baseline(name, cell, iops)
    return Baselines(cells, "run r1")


def workload(times: int = 1) -> Profile:
    counts = {b.name: 0 for b in SIZE_BINS}
    accesses = {
        Op.READ: {**counts, "4K": 900 * times, "1M": 100 * times},
        Op.WRITE: {**counts, "4K": 300 * times, "128K": 50 * times},
    }
    return Profile("shop", accesses, {Op.READ: 0.9, Op.WRITE: 0.4})


def without(baselines: Baselines, name: str, cell: Cell, why: str = "") -> Baselines:
    cells = {key: value for key, value in baselines.cells.items() if key != (name, cell)}
    return replace(baselines, cells=cells, missing={(name, cell): why} if why else {})


def a_cell_of(model_predictor: Predictor) -> Cell:
    """One that the profile uses, in whatever way the model looks at it."""
    return model_predictor.predict(workload(), measured()).predictions[0].reasons[0].cell


def assert_same(one: PredictionSet, other: PredictionSet) -> None:
    """Up to the last digits, which depend on the order of sums."""
    assert [p.configuration for p in one.predictions] == [p.configuration for p in other.predictions]
    assert (one.best, one.worst, one.as_good) == (other.best, other.worst, other.as_good)
    for a, b in zip(one.predictions, other.predictions, strict=True):
        assert (a.relative, a.low, a.high) == pytest.approx((b.relative, b.low, b.high), rel=1e-9)
        assert a.verdict is b.verdict
    assert one.noise_floor == pytest.approx(other.noise_floor, rel=1e-9)


def test_it_says_which_model_speaks_of_what(model_predictor: Predictor) -> None:
    answer = model_predictor.predict(workload(), measured())
    assert model_predictor.name in (*MODELS, LEARNED)
    # This profile has no waiting times, so the model that needs them leaves the answer to the one that does not.
    model = "time" if model_predictor.name == "waiting" else model_predictor.name
    assert (answer.model, answer.profile, answer.baselines) == (model, "shop", "run r1")
    assert 0 < answer.confidence < 1


def test_every_configuration_is_ranked_once_the_best_first(ranking_predictor: Predictor) -> None:
    answer = ranking_predictor.predict(workload(), measured())
    names = [p.configuration for p in answer.predictions]
    assert sorted(names) == sorted(FACTORS)
    relative = [p.relative for p in answer.predictions]
    assert relative == sorted(relative, reverse=True)
    assert names[0] == "fast"
    assert names[-1] == "slow"
    assert {answer.best, answer.worst, *answer.as_good} <= set(names)
    assert answer.best not in answer.as_good


def test_the_default_is_100_and_the_others_are_told_by_their_intervals(ranking_predictor: Predictor) -> None:
    answer = ranking_predictor.predict(workload(), measured())
    for p in answer.predictions:
        assert 0 < p.relative < math.inf
        assert p.low <= p.relative <= p.high
        if p.configuration == "A":
            assert (p.relative, p.low, p.high, p.verdict) == (100.0, 100.0, 100.0, Verdict.DEFAULT)
        else:
            expected = (
                Verdict.BETTER if p.low > 100 else Verdict.WORSE if p.high < 100 else Verdict.INDISTINGUISHABLE
            )
            assert p.verdict is expected
    assert answer.of("fast").verdict is Verdict.BETTER
    assert answer.of("slow").verdict is Verdict.WORSE
    assert answer.of("nearly").verdict is Verdict.INDISTINGUISHABLE
    assert (answer.best, answer.worst) == ("fast", "slow")
    assert 0 < answer.noise_floor <= min(abs(answer.of(name).relative - 100) for name in ("fast", "slow"))


def test_another_reference_than_the_default_is_100(ranking_predictor: Predictor) -> None:
    answer = ranking_predictor.against("slow", workload(), measured())
    assert {p.configuration for p in answer.predictions} == set(FACTORS)
    slow = answer.of("slow")
    assert (slow.relative, slow.low, slow.high, slow.verdict) == (100.0, 100.0, 100.0, Verdict.DEFAULT)
    assert {answer.of(name).verdict for name in ("A", "nearly", "fast")} == {Verdict.BETTER}
    default = ranking_predictor.against("A", workload(), measured())
    assert_same(default, ranking_predictor.predict(workload(), measured()))


def test_its_reasons_add_up_to_what_it_predicts(any_predictor: Predictor) -> None:
    for p in any_predictor.predict(workload(), measured()).predictions:
        assert sum(r.weight for r in p.reasons) == pytest.approx(1)
        assert sum(r.points for r in p.reasons) == pytest.approx(p.relative - 100, abs=1e-9)
        points = [abs(r.points) for r in p.reasons]
        assert points == sorted(points, reverse=True), "the most important first"


def test_a_configuration_that_is_the_default_by_another_name_is_100(any_predictor: Predictor) -> None:
    """Its figures are the same, not only its speed."""
    baselines = measured()
    twin = {
        ("twin", cell): replace(b, configuration="twin") for (n, cell), b in baselines.cells.items() if n == "A"
    }
    answer = any_predictor.predict(workload(), replace(baselines, cells={**baselines.cells, **twin}))
    assert answer.of("twin").relative == pytest.approx(100)
    assert answer.of("twin").verdict is Verdict.INDISTINGUISHABLE


def test_only_ratios_count_of_rates_and_of_accesses(any_predictor: Predictor) -> None:
    answer = any_predictor.predict(workload(), measured())
    assert_same(answer, any_predictor.predict(workload(), measured(times=1000.0)))
    assert_same(answer, any_predictor.predict(workload(times=1000), measured()))


def test_the_order_of_the_baselines_does_not_matter(ranking_predictor: Predictor) -> None:
    baselines = measured()
    items = list(baselines.cells.items())
    random.Random(1).shuffle(items)
    assert_same(
        ranking_predictor.predict(workload(), baselines),
        ranking_predictor.predict(workload(), replace(baselines, cells=dict(items))),
    )


def test_nothing_is_told_of_what_was_measured_once(any_predictor: Predictor) -> None:
    answer = any_predictor.predict(workload(), measured(rounds=1))
    compared = [p for p in answer.predictions if p.configuration != "A"]
    assert len(compared) == len(FACTORS) - 1
    assert {p.verdict for p in compared} == {Verdict.INDISTINGUISHABLE}
    assert (answer.best, answer.worst) == ("A", "A")
    assert answer.noise_floor == math.inf
    assert answer.notes


def test_it_is_pure(any_predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answer to the same question, which stays as it was; no file, clock, dice or program is asked."""
    profile, baselines = workload(), measured()
    before = copy.deepcopy((profile, baselines))
    answer = any_predictor.predict(profile, baselines)  # modules are imported by now

    def refuse(*_: object, **__: object) -> object:
        raise AssertionError("this is no pure function")

    with monkeypatch.context() as world:
        for module, name in (
            (builtins, "open"),
            (io, "open"),
            (os, "open"),
            (os, "getenv"),
            (os, "urandom"),
            (socket, "socket"),
            (subprocess, "Popen"),
            (random, "random"),
            (np.random, "default_rng"),
            *((time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter")),
        ):
            world.setattr(module, name, refuse)
        again = predictor_of(any_predictor.name).predict(profile, baselines)
    assert again == answer
    assert (profile, baselines) == before


def test_threads_may_ask_one_predictor_at_once(any_predictor: Predictor) -> None:
    questions = [measured({"A": 1.0, "x": 1 + n / 10}) for n in range(6)]
    alone = [any_predictor.predict(workload(), question) for question in questions]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda question: any_predictor.predict(workload(), question), questions)) == alone


@pytest.mark.parametrize("rounds", [1, ROUNDS])
def test_what_it_says_is_json_and_back(any_predictor: Predictor, rounds: int) -> None:
    answer = any_predictor.predict(workload(), measured(rounds=rounds))
    assert PredictionSet.from_json(json.loads(json.dumps(answer.to_json(), allow_nan=False))) == answer


def test_a_cell_that_the_default_lacks_is_an_error_with_place_and_remedy(model_predictor: Predictor) -> None:
    cell = a_cell_of(model_predictor)
    with pytest.raises(InputError) as caught:
        model_predictor.predict(workload(), without(measured(), "A", cell, "fio gave no result"))
    assert str(cell) in caught.value.what
    assert "fio gave no result" in caught.value.what
    assert "run r1" in caught.value.where
    assert caught.value.remedy


def test_a_configuration_that_lacks_a_cell_is_left_out_and_named(ranking_predictor: Predictor) -> None:
    cell = a_cell_of(ranking_predictor)
    answer = ranking_predictor.predict(workload(), without(measured(), "fast", cell, "fio gave no result"))
    assert "fast" not in [p.configuration for p in answer.predictions]
    (note,) = [note for note in answer.notes if "fast" in note]
    assert str(cell) in note
    assert "fio gave no result" in note


def test_a_cell_that_the_profile_does_not_use_is_not_needed(any_predictor: Predictor) -> None:
    used = {reason.cell for reason in any_predictor.predict(workload(), measured()).predictions[0].reasons}
    baselines = measured()
    needed = {key: value for key, value in baselines.cells.items() if key[1] in used}
    answer = any_predictor.predict(workload(), replace(baselines, cells=needed))
    assert sorted(p.configuration for p in answer.predictions) == sorted(FACTORS)


def test_a_profile_without_accesses_is_an_error_with_place_and_remedy(any_predictor: Predictor) -> None:
    with pytest.raises(InputError) as caught:
        any_predictor.predict(workload(times=0), measured())
    assert caught.value.what
    assert "shop" in str(caught.value)
    assert caught.value.remedy
