"""An optimiser's trials: proposed from earlier results, and stored before they are measured."""

from pathlib import Path

import pytest
from ends_of_programs import EndOfProgramError, StopsAfter
from simulated_truth import true_iops

from cephfit.core.protocols import NullProgress
from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.core.values.sample import TRIALS_DOCUMENT, Run, State
from cephfit.mapper import predictor
from cephfit.operations.measuring.run_status import run_summary
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.rounds import full_plan
from cephfit.sweep.execution.run_progress import RunProgress
from cephfit.sweep.execution.runner import run_sweep
from cephfit.sweep.optimiser import proposals, rounds_by_name, trials_from_json, values_of, with_trials
from cephfit.sweep.sweep_plan import Goal, Sweep, even_profile
from cephfit.targets.simulated import SimulatedTarget, Simulation

pytest.importorskip("optuna")

OPTIMISE = """\
schema_version: 1
name: optimise
design:
  kind: optimise
  trials: 9
  batch: 3
  seed: 4
  cell: 1M-randwrite
  settings:
    ceph: {osd: {bluestore_max_blob_size_hdd: {low: 64K, high: 4M, scale: log}, osd_max_backfills: [1, 2, 3]}}
    image: {object_size: [256K, 1M, 4M]}
  factors:
    ssd: {pool: {crush_rule: [default, ssd]}}
measurement: {sizes: [1M], patterns: [randwrite], clients: 1, volume_size: 4M, repeats: 2, run_seconds: 1, seed: 1}
"""


def _blob(value: str) -> Setting:
    return Setting(Partition.CEPH, "osd", "bluestore_max_blob_size_hdd", value)


def _object_size(value: str) -> Setting:
    return Setting(Partition.POOL, "image", "object_size", value)


def optimise(sweep: Sweep, store: Store, goal: Goal | None = None) -> Run:
    return run_sweep(sweep, SimulatedTarget(Simulation(noise=0.03)), store, NullProgress(), resume=None, goal=goal)


def test_the_search_comes_close_to_the_optimum(store: Store) -> None:
    """The settings act together: the best of the whole space is known, and 18 trials come close to it."""
    sweep = parse_sweep(OPTIMISE.replace("trials: 9", "trials: 18"), file="f")
    run = optimise(sweep, store)
    trials = trials_from_json(store.document(run.run_id, TRIALS_DOCUMENT))
    assert [t.configuration.name for t in trials] == [f"trial-{i:02d}" for i in range(1, 19)]
    assert [t.batch for t in trials] == [i // 3 for i in range(18)]
    values = values_of(sweep, trials, store.samples(run.run_id), None)
    optimum = max(
        true_iops(Configuration("x", settings), Cell.parse("1M-randwrite"), n_clients=1, iodepth=1)
        for settings in (
            (blob, size, *rule)
            for blob in (_blob("64K"), _blob("512K"), _blob("4M"))
            for size in (_object_size("256K"), _object_size("1M"), _object_size("4M"))
            for rule in ((), (Setting(Partition.POOL, "pool", "crush_rule", "ssd"),))
        )
    )
    default = true_iops(Configuration("A"), Cell.parse("1M-randwrite"), n_clients=1, iodepth=1)
    assert max(v for v in values if v is not None) > 0.9 * 100 * optimum / default > 300
    assert len({t.configuration.settings for t in trials}) == 18, "no point is tried twice"


def test_every_batch_contains_the_default(store: Store) -> None:
    sweep = parse_sweep(OPTIMISE, file="f")
    run = optimise(sweep, store)
    samples = store.samples(run.run_id)
    by_round: dict[int, set[str]] = {}
    for sample in samples:
        by_round.setdefault(sample.key.repeat, set()).add(sample.key.configuration)
    assert by_round[0] == by_round[1] == {"A", "trial-01", "trial-02", "trial-03"}
    assert by_round[5] == {"A", "trial-07", "trial-08", "trial-09"}
    trials = trials_from_json(store.document(run.run_id, TRIALS_DOCUMENT))
    run_progress = RunProgress(with_trials(sweep, trials), samples, rounds=rounds_by_name(sweep, trials))
    assert [(s.configuration, s.planned, s.ok, s.left) for s in run_progress.all()][:2] == [
        ("A", 6, 6, 0),
        ("trial-01", 2, 2, 0),
    ]
    assert full_plan(sweep).n_runs == sum(s.planned for s in run_progress.all())
    summary = run_summary(store, run)
    assert (summary["samples"]["planned"], summary["samples"]["measured"]) == (24, 24)
    assert summary["configurations"] == 10


@pytest.mark.parametrize("n_runs", [0, 3, 8, 13, 16])
def test_after_a_kill_it_proposes_and_measures_the_same(n_runs: int, tmp_path: Path) -> None:
    """A batch has eight runs: kills within batches, and between two batches."""
    sweep = parse_sweep(OPTIMISE, file="f")

    def kept(store: Store, run: Run) -> object:
        samples = sorted(f"{s.key} {s.metrics}" for s in store.samples(run.run_id))
        return samples, store.document(run.run_id, TRIALS_DOCUMENT)

    with Store.open(tmp_path / "unbroken.sqlite", create=True) as store:
        unbroken = kept(store, optimise(sweep, store))
    with Store.open(tmp_path / "broken.sqlite", create=True) as store:
        target = SimulatedTarget(Simulation(noise=0.03))
        with pytest.raises(EndOfProgramError):
            run_sweep(sweep, target, store, NullProgress(), resume=None, engine=StopsAfter(target, n_runs))
        begun = store.unfinished_run(sweep_digest=sweep.digest, target="sim")
        assert begun is not None
        again = run_sweep(sweep, SimulatedTarget(Simulation(noise=0.03)), store, NullProgress(), resume=begun)
        assert kept(store, again) == unbroken


def test_the_same_history_gives_the_same_proposals_and_another_seed_others() -> None:
    sweep = parse_sweep(OPTIMISE, file="f")
    assert sweep.search is not None
    factors = sweep.search.design.factors
    history = [(tuple(0.5 if f.span else float(i % len(f.levels)) for f in factors), 100.0 + i) for i in range(6)]
    assert proposals(sweep.search, history, 3) == proposals(sweep.search, history, 3)
    other = parse_sweep(OPTIMISE.replace("seed: 4", "seed: 5"), file="f").search
    assert other is not None
    assert proposals(other, history, 3) != proposals(sweep.search, history, 3)


def test_an_exhausted_space_ends_the_search(store: Store) -> None:
    small = OPTIMISE[: OPTIMISE.index("  settings:")] + OPTIMISE[OPTIMISE.index("  factors:") :]
    small = small.replace(
        "ssd: {pool: {crush_rule: [default, ssd]}}", "s: {pool: {crush_rule: [default, ssd, hy]}}"
    )
    run = optimise(parse_sweep(small, file="f"), store)
    assert run.finished
    trials = trials_from_json(store.document(run.run_id, TRIALS_DOCUMENT))
    assert {t.configuration.why for t in trials} == {"s = ssd", "s = hy"}, "the default is measured anyway"


def test_an_unsupported_trial_is_skipped_and_counts_as_failed(store: Store) -> None:
    text = OPTIMISE.replace("osd_max_backfills: [1, 2, 3]", "osd_op_threads: [1, 2, 3]")
    sweep = parse_sweep(text, file="f")
    run = optimise(sweep, store)
    samples = [s for s in store.samples(run.run_id) if s.key.configuration != "A"]
    assert {s.state for s in samples} == {State.SKIPPED}
    trials = trials_from_json(store.document(run.run_id, TRIALS_DOCUMENT))
    assert values_of(sweep, trials, samples, None) == [None] * len(trials)


def test_the_performance_for_a_workload_can_be_the_goal(store: Store) -> None:
    sweep = parse_sweep(OPTIMISE.replace("  cell: 1M-randwrite\n", "  direction: minimise\n"), file="f")
    goal = Goal(lambda c: predictor("time", confidence=c), "time", even_profile(sweep.measurement))
    run = optimise(sweep, store, goal)
    trials = trials_from_json(store.document(run.run_id, TRIALS_DOCUMENT))
    samples = store.samples(run.run_id)
    values = values_of(sweep, trials, samples, goal)
    first = baselines_of([s for s in samples if s.key.repeat < 2], source="first batch")
    cell = Cell.parse("1M-randwrite")
    expected = sum(first.of("trial-01", cell).iops) / sum(first.of("A", cell).iops)
    assert values[0] == pytest.approx(100 * expected), "with one cell the prediction is the ratio of the rates"
