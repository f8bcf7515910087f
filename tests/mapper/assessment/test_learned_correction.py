"""The model ``learned``: it finds a known error of a model, and keeps away from what is only noise."""

import math
import random
from dataclasses import replace

import pytest
from evaluated_workloads import evaluated

from cephfit.core.values.prediction import Verdict
from cephfit.mapper import predictor
from cephfit.mapper.assessment.learned_correction import (
    LearnedPredictor,
    Slopes,
    lesson_of,
    lessons_from,
    slopes_of,
)
from cephfit.mapper.assessment.model_evaluation import EvaluatedWorkload, LeaveOut, Residual

LOGS = {"twin": 0.0, "fast": 1.4, "quick": 0.5, "better": 0.2, "slower": -0.4, "slow": -1.1}


def residuals(
    gain: float = 0.0,
    loss: float = 0.0,
    *,
    noise: float = 0.05,
    workloads: int = 8,
    outliers: int = 0,
    seed: int = 1,
) -> list[Residual]:
    """What a model misses that misjudges gains and losses by these shares of their logs."""
    dice = random.Random(seed)
    found = []
    for number in range(workloads):
        for name, log in LOGS.items():
            own = log * dice.uniform(0.8, 1.2)
            error = (gain if own > 0 else loss) * own + dice.gauss(0, noise)
            found.append(Residual(f"w{number}", name, error, own, 0.02))
    for i in range(outliers):
        found[i * 7] = replace(found[i * 7], log_error=-2.0)
    return found


def stretched(workloads: list[EvaluatedWorkload], gain: float) -> list[EvaluatedWorkload]:
    """The same workloads, whose gains are larger in their logs than a model predicts."""
    changed = []
    for one in workloads:
        default = {s.repeat: s.value or 0.0 for s in one.samples if s.configuration == "A"}
        samples = tuple(
            replace(s, value=default[s.repeat] * math.exp(log * (1 + gain) if log > 0 else log))
            for s in one.samples
            for log in (math.log((s.value or 0.0) / default[s.repeat]),)
        )
        changed.append(replace(one, samples=samples))
    return changed


def test_known_slopes_are_found_among_noise_and_a_few_gross_misses() -> None:
    for outliers in (0, 3):
        found = slopes_of(residuals(0.4, -0.2, outliers=outliers))
        assert found.gain == pytest.approx(0.4, abs=0.05)
        assert found.loss == pytest.approx(-0.2, abs=0.05)


def test_without_data_nothing_is_corrected_and_the_prior_is_its_uncertainty() -> None:
    nothing = slopes_of([])
    assert (nothing.gain, nothing.loss) == (0.0, 0.0)
    assert nothing.sd(1.0) == pytest.approx(0.3)
    assert nothing.sd(-2.0) == pytest.approx(0.6)
    few = slopes_of(residuals(0.4, workloads=8)[1:2])
    assert 0 < few.gain < 0.4, "one ratio is believed in part"
    assert few.loss == 0.0


def test_the_uncertainty_of_a_slope_covers_it_where_configurations_differ() -> None:
    """Each configuration has an error of its own, so that many workloads on few of them show little."""
    misses = 0
    for seed in range(200):
        dice = random.Random(seed)
        own = {name: dice.gauss(0, 0.1) for name in LOGS}
        rows = [replace(r, log_error=r.log_error + own[r.configuration]) for r in residuals(0.2, seed=seed)]
        found = slopes_of(rows)
        misses += abs(found.gain - 0.2) > 2.5 * found.sd(1.0)
    assert misses <= 200 * 0.2  # one of three configurations with gains has nearly all of the weight


def test_a_correction_is_used_only_where_it_is_better_on_what_is_left_out() -> None:
    real = lesson_of(residuals(0.4))
    assert real.helps
    assert real.advantages[LeaveOut.WORKLOADS].after < 0.6 * real.advantages[LeaveOut.WORKLOADS].before
    used = sum(lesson_of(residuals(seed=seed, noise=0.1)).helps for seed in range(20))
    assert used <= 4, "noise is rarely taken for an error of the model: one standard error is the limit"
    assert not lesson_of(residuals(0.4, workloads=2)).helps, "two workloads are too few to say so"
    assert not lesson_of([]).helps


def test_an_error_of_one_configuration_is_not_carried_to_others() -> None:
    """Left out, the configuration shows that the slopes of the others are none."""
    rows = [replace(r, log_error=r.log_error + (0.8 if r.configuration == "quick" else 0.0)) for r in residuals()]
    assert not lesson_of(rows).helps


def test_slopes_keep_the_order_and_the_default() -> None:
    found = slopes_of([Residual(f"w{i}", "fast", -9.0, 0.2, 0.0) for i in range(50)])
    assert found.corrected(0.0) == 0.0
    assert found.corrected(0.1) < found.corrected(0.2)


def test_a_workload_left_out_is_predicted_as_it_was_measured() -> None:
    everything = stretched(evaluated(noise=0.002), 0.3)
    many = [replace(one, workload=f"{one.workload}{i}") for i in range(2) for one in everything]
    left = everything[0]
    others = [one for one in many if not one.workload.startswith(left.workload)]
    answer = LearnedPredictor.of(lessons_from(others), 0.95).predict(left.profile, left.baselines)
    before = predictor("waiting").predict(left.profile, left.baselines)
    assert answer.model == "learned"
    assert [p.configuration for p in answer.predictions] == [p.configuration for p in before.predictions]
    for p in answer.predictions:
        log = math.log(before.of(p.configuration).relative / 100)
        truth = 100 * math.exp(1.3 * log if log > 0 else log)
        assert p.relative == pytest.approx(truth, rel=0.03)
        assert p.low * 0.999 <= truth <= p.high * 1.001
    assert answer.of("A").verdict is Verdict.DEFAULT
    assert any("learned" in note and "left out" in note for note in answer.notes)


def test_where_the_model_is_right_it_answers_and_says_why() -> None:
    one, *others = evaluated(noise=0.02)
    answer = LearnedPredictor.of(lessons_from(others), 0.95).predict(one.profile, one.baselines)
    assert answer.model == "waiting"
    assert (
        answer.predictions == predictor("waiting", with_error=True).predict(one.profile, one.baselines).predictions
    )
    (note,) = [n for n in answer.notes if n.startswith("nothing learned")]
    assert "does not help reliably" in note
    nothing = LearnedPredictor.of({}, 0.95).predict(one.profile, one.baselines)
    assert "no verified run" in nothing.notes[-1]


def test_uncertain_slopes_widen_the_interval() -> None:
    one = stretched(evaluated(noise=0.002), 0.3)[0]
    ((kind, lesson),) = lessons_from(stretched(evaluated(noise=0.002), 0.3)).items()
    unsure = replace(lesson, slopes=Slopes(lesson.slopes.gain, lesson.slopes.loss, ((0.04, 0.0), (0.0, 0.04))))
    sure = replace(lesson, slopes=Slopes(lesson.slopes.gain, lesson.slopes.loss, ((0.0, 0.0), (0.0, 0.0))))
    widths = []
    for own in (sure, unsure):
        answer = LearnedPredictor.of({kind: own}, 0.9).predict(one.profile, one.baselines)
        widths.append(math.log(answer.of("fast").high / answer.of("fast").relative))
    # 1.645 standard deviations of 0.2 times the log of the predicted gain of 1.5, added in squares.
    assert widths[1] == pytest.approx(math.hypot(widths[0], 1.645 * 0.2 * math.log(1.5)), rel=0.05)
