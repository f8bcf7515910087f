"""Races of configurations, and precise cells: decisions, their times, and decisions after a kill."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ends_of_programs import EndOfProgramError, StopsAfter
from simulated_truth import true_iops

from cephfit.core.errors import InputError
from cephfit.core.protocols import NullProgress, Predictor
from cephfit.core.values.cells import Cell
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import OWN_LOAD, STOPPING_DOCUMENT, Metrics, Run, Sample, SampleKey, State
from cephfit.mapper import predictor
from cephfit.results.report.report_build import read_findings, report_of
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.racing import Contest, Look
from cephfit.sweep.execution.rounds import (
    ASSUMED_SCATTER,
    Decided,
    begin,
    decide,
    expected_saving,
    saved_runs,
    simulated_samples,
    stops_of,
)
from cephfit.sweep.execution.run_progress import RunProgress
from cephfit.sweep.execution.runner import run_sweep
from cephfit.sweep.sweep_plan import Decide, Goal, Stopping, Sweep, cell_profile, even_profile, plan_of
from cephfit.targets.simulated import SimulatedTarget, Simulation

RACE = """\
schema_version: 1
name: race
stopping: {race: %s}
configurations:
  A-again: {}
  ssd: {pool: {crush_rule: ssd}}
  no-deferred: {ceph: {osd: {bluestore_prefer_deferred_size_hdd: 0}}}
  blob: {ceph: {osd: {bluestore_max_blob_size_hdd: 512K}}}
  journaling: {image: {features: "layering,journaling"}}
measurement:
  sizes: [4K, 1M]
  clients: 2
  volume_size: 4M
  repeats: 9
  run_seconds: 1
  seed: 7
"""


def time_predictor(confidence: float) -> Predictor:
    return predictor("time", confidence=confidence)


def decisions(sweep: Sweep, samples: Iterable[Sample], goal: Goal | None, *, rounds: int) -> Iterator[Decided]:
    """Yield the decisions after each of the first ``rounds`` rounds, in order, from the samples alone."""
    stopping = sweep.stopping
    if stopping is None:
        return
    kept = [s for s in samples if s.key.load == OWN_LOAD]
    decided = begin(sweep, goal)
    for measured in range(stopping.minimum, min(rounds, sweep.measurement.repeats - 1) + 1):
        decided = decide(decided, sweep, kept, goal, measured=measured)
        yield decided


@pytest.fixture
def sweep() -> Sweep:
    return parse_sweep(RACE % "profile", file="race.yaml")


@pytest.fixture
def goal(sweep: Sweep) -> Goal:
    return Goal(time_predictor, "time", even_profile(sweep.measurement))


def measure(sweep: Sweep, goal: Goal | None, store: Store, *, noise: float = 0.05) -> Run:
    target = SimulatedTarget(Simulation(noise=noise))
    return run_sweep(sweep, target, store, NullProgress(), resume=None, goal=goal, health_limit_seconds=5)


def full_plan_of(sweep: Sweep, *, noise: float, seed: int) -> list[Sample]:
    """Return all nine repeats with the simulated cluster's true rates and noise."""
    dice = np.random.default_rng(seed)
    m = sweep.measurement
    samples = []
    for configuration in sweep.configurations:
        for cell, repeat, client in itertools.product(m.cells, range(m.repeats), ("c0", "c1")):
            truth = true_iops(configuration, cell, n_clients=2, iodepth=1)
            iops = truth * float(dice.lognormal(0, noise))
            metrics = Metrics(iops, iops * cell.size.benchmark_nbytes, 100, 10**9, 1e6)
            samples.append(Sample(SampleKey(configuration.name, cell, client, repeat), State.OK, metrics, 0, 0))
    return samples


def test_a_race_finds_the_best_and_the_worst_and_stops(sweep: Sweep, goal: Goal, store: Store) -> None:
    run = measure(sweep, goal, store)
    assert run.finished
    document = store.document(run.run_id, STOPPING_DOCUMENT)
    assert document is not None
    assert [(r["best"], r["worst"]) for r in document["races"]] == [("ssd", "journaling")]
    rounds = max(s.key.repeat for s in store.samples(run.run_id)) + 1
    assert rounds < 9
    progresses = RunProgress(sweep, store.samples(run.run_id), stops=stops_of(document)).all()
    n_clients = sweep.measurement.n_clients
    assert all(s.left == 0 and s.ok + s.saved == s.planned == 8 * 9 * n_clients for s in progresses)
    assert document["runs_saved"] * n_clients == sum(s.saved for s in progresses)


def test_in_twenty_sweeps_a_race_agrees_with_the_full_plan_at_a_third_of_its_runs(
    sweep: Sweep, goal: Goal
) -> None:
    """On the simulated cluster with known true rates; benchmarks/racing.py has the same on a recorded real one."""
    assert goal.profile is not None
    plan = plan_of(sweep)
    parts, agreed = [], 0
    for seed in range(20):
        samples = full_plan_of(sweep, noise=0.08, seed=seed)
        predicted = time_predictor(0.95).predict(goal.profile, baselines_of(samples, source="all nine"))
        decided = list(decisions(sweep, samples, goal, rounds=8))[-1]
        picks = {side.word: side.pick for side in decided.contests[None].sides}
        agreed += picks == {"best": predicted.best, "worst": predicted.worst}
        parts.append(1 - saved_runs(plan, {p: s.after for p, s in decided.stopped.items()}) / plan.n_runs)
    assert agreed == 20
    assert sum(parts) / 20 <= 0.35


def test_a_decision_does_not_depend_on_later_rounds(sweep: Sweep, goal: Goal) -> None:
    samples = simulated_samples(sweep, replace(ASSUMED_SCATTER, configurations=0.03, cells=0.03), seed=3)
    some_open = False
    for measured in range(2, 9):
        early = [s for s in samples if s.key.repeat < measured]
        with_all = list(decisions(sweep, samples, goal, rounds=measured))[-1]
        with_early = list(decisions(sweep, reversed(early), goal, rounds=measured))[-1]
        assert with_all == with_early
        some_open |= not with_all.contests[None].over
    assert some_open, "a race that ends at the first look would prove nothing"


@pytest.mark.parametrize(
    ("race", "n_runs"),
    [
        pytest.param("profile", 48, marks=pytest.mark.slow),
        ("profile", 95),
        pytest.param("cells", 97, marks=pytest.mark.slow),
        ("cells", 110),
    ],
)
def test_a_killed_race_continues_with_the_same_runs(race: str, n_runs: int, tmp_path: Path) -> None:
    """A round has 48 runs: kills at the end of a round, before and right after a decision, and later."""
    sweep = parse_sweep(RACE % race, file="race.yaml")
    goal = Goal(time_predictor, "time", even_profile(sweep.measurement) if race == "profile" else None)
    simulation = Simulation(noise=0.3, seed=5)

    def kept(store: Store, run: Run) -> tuple[list[str], object]:
        document = store.document(run.run_id, STOPPING_DOCUMENT)
        return sorted(f"{s.key} {s.metrics}" for s in store.samples(run.run_id)), document

    with Store.open(tmp_path / "unbroken.sqlite", create=True) as store:
        target = SimulatedTarget(simulation)
        unbroken = kept(store, run_sweep(sweep, target, store, NullProgress(), resume=None, goal=goal))
    with Store.open(tmp_path / "broken.sqlite", create=True) as store:
        target = SimulatedTarget(simulation)
        with pytest.raises(EndOfProgramError):
            run_sweep(
                sweep, target, store, NullProgress(), resume=None, goal=goal, engine=StopsAfter(target, n_runs)
            )
        begun = store.unfinished_run(sweep_digest=sweep.digest, target="sim")
        assert begun is not None
        again = SimulatedTarget(simulation)
        assert kept(store, run_sweep(sweep, again, store, NullProgress(), resume=begun, goal=goal)) == unbroken


def test_a_race_in_every_cell_decides_every_cell(store: Store) -> None:
    sweep = parse_sweep(RACE % "cells", file="race.yaml")
    run = measure(sweep, Goal(time_predictor, "time"), store)
    document = store.document(run.run_id, STOPPING_DOCUMENT)
    assert document is not None
    answers = {r["for"]: (r["best"], r["worst"]) for r in document["races"]}
    assert set(answers) == {str(c) for c in sweep.measurement.cells}
    assert answers["4K-randwrite"] == ("ssd", "journaling")
    assert answers["4K-randread"][0] == "ssd"
    assert answers["4K-randread"][1] in ("A", None), "nothing is worse than the default at reading"


def test_cells_that_the_workload_does_not_use_get_the_minimum_of_repeats(store: Store) -> None:
    sweep = parse_sweep(RACE % "profile", file="race.yaml")
    run = measure(sweep, Goal(time_predictor, "time", cell_profile(Cell.parse("4K-randread"))), store)
    repeats: dict[str, int] = {}
    for sample in store.samples(run.run_id):
        repeats[str(sample.key.cell)] = max(repeats.get(str(sample.key.cell), 0), sample.key.repeat + 1)
    assert all(n == 2 for cell, n in repeats.items() if cell != "4K-randread")


def test_a_precise_cell_is_no_longer_measured(store: Store) -> None:
    text = RACE.replace("{race: %s}", "{within_percent: 4}")
    sweep = parse_sweep(text, file="f")
    run = measure(sweep, None, store, noise=0.03)
    document = store.document(run.run_id, STOPPING_DOCUMENT)
    assert document is not None
    assert 0 < document["runs_saved"] < document["runs_of_full_plan"]
    for row in document["stopped"]:
        half_percent = float(row["reason"].split(" within ")[1].split(" %")[0])
        assert half_percent <= 4.0


def test_a_configuration_without_figures_leaves_the_race(sweep: Sweep, goal: Goal, store: Store) -> None:
    target = SimulatedTarget(Simulation(refuse="journaling", noise=0.05))
    run = run_sweep(sweep, target, store, NullProgress(), resume=None, goal=goal, health_limit_seconds=5)
    document = store.document(run.run_id, STOPPING_DOCUMENT)
    assert document is not None
    assert document["races"][0]["best"] == "ssd"
    assert document["races"][0]["worst"] != "journaling"


def test_a_race_of_equals_stops_early() -> None:
    """Two copies of the default: no difference is significant, and this is decided before nine repeats."""
    text = RACE[: RACE.index("  ssd:")] + "  A-too: {}\n" + RACE[RACE.index("measurement:") :]
    sweep = parse_sweep(text % "profile", file="f")
    goal = Goal(time_predictor, "time", even_profile(sweep.measurement))
    decided_early = false = 0
    for seed in range(20):
        samples = simulated_samples(sweep, replace(ASSUMED_SCATTER, configurations=0.0, cells=0.0), seed)
        last = list(decisions(sweep, samples, goal, rounds=8))[-1]
        picks = [side.pick for side in last.contests[None].sides]
        false += not set(picks) <= {"A", None}
        decided_early += picks == ["A", "A"]
    assert decided_early >= 12
    assert false <= 3, "meant for one in twenty"


def test_the_error_is_divided_among_all_looks() -> None:
    look = Look(measured=3, ceiling=9, stopping=Stopping(confidence=0.95, minimum=2))
    assert 7 * (1 - look.confidence) == pytest.approx(0.025), "and half of it is held in reserve"


def test_only_the_requested_end_is_decided() -> None:
    contest = Contest.begin(cell_profile(Cell.parse("4K-read")), ["A", "b"], Decide.WORST)
    assert [side.word for side in contest.sides] == ["worst"]


def test_a_race_without_its_workload_is_refused_before_anything_changes(sweep: Sweep, store: Store) -> None:
    with pytest.raises(InputError, match="no workload was given"):
        measure(sweep, Goal(time_predictor, "time"), store)
    lacking = Goal(time_predictor, "time", cell_profile(Cell.parse("32M-read")))
    with pytest.raises(InputError, match="does not measure: 32M-read"):
        measure(sweep, lacking, store)
    assert store.runs() == []


def test_a_race_does_not_continue_for_another_workload(sweep: Sweep, goal: Goal, store: Store) -> None:
    target = SimulatedTarget()
    with pytest.raises(EndOfProgramError):
        run_sweep(sweep, target, store, NullProgress(), resume=None, goal=goal, engine=StopsAfter(target, 3))
    other = replace(goal, profile=cell_profile(Cell.parse("4K-read")))
    with pytest.raises(InputError, match="another workload"):
        run_sweep(sweep, target, store, NullProgress(), resume=store.run(), goal=other)


@pytest.mark.slow
def test_a_plan_expects_to_save_more_where_configurations_differ_more(sweep: Sweep, goal: Goal) -> None:
    far = expected_saving(sweep, goal, replace(ASSUMED_SCATTER, configurations=0.5))
    near = expected_saving(sweep, goal, replace(ASSUMED_SCATTER, repeats=0.1, configurations=0.02, cells=0.02))
    assert near[1] < far[1] <= 7 / 9
    assert all(low <= middle <= high for low, middle, high in (far, near))


def test_the_report_shows_the_saved_runs(sweep: Sweep, goal: Goal, store: Store) -> None:
    run = measure(sweep, goal, store)
    report = report_of(read_findings(store, run.run_id), made_ns=1)
    summary = dict(report.method.summary)
    assert summary["Race for even"] == "best ssd, worst journaling"
    saved = int(summary["Runs saved"].split()[0])
    assert saved == (store.document(run.run_id, STOPPING_DOCUMENT) or {})["runs_saved"]
    assert any("stopped when the sweep's question was decided" in caveat for caveat in report.caveats)


@pytest.mark.parametrize("model", ["meyer", "meyer-random"])
def test_models_without_ratios_race_too(model: str, sweep: Sweep, store: Store) -> None:
    def predictor_of(confidence: float) -> Predictor:
        return predictor(model, confidence=confidence)

    profile: Callable[..., Profile] = even_profile
    run = measure(sweep, Goal(predictor_of, model, profile(sweep.measurement)), store)
    document = store.document(run.run_id, STOPPING_DOCUMENT)
    assert document is not None
    assert document["races"][0]["best"] == "ssd"


def test_a_sweep_without_stopping_has_no_decisions(sweep: Sweep) -> None:
    full = replace(sweep, stopping=None)
    assert begin(full, None) == Decided()
    assert decide(begin(sweep, None), sweep, [], None, measured=2).stopped == {}
