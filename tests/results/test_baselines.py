"""Samples to baselines: what counts and what does not."""

from dataclasses import replace
from pathlib import Path

import pytest
from example_run import example_run

from cephfit.core.errors import InputError
from cephfit.core.statistics.sample_columns import Rows, SampleColumns
from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.results.statistics import sample_baselines as baselines_module
from cephfit.results.statistics.loads import Place, Tried
from cephfit.results.statistics.sample_baselines import baselines_of, joined_baselines
from cephfit.results.store.sample_store import Store

CELL = Cell.parse("4K-randread")


def sample(
    iops: float, client: str = "c0", repeat: int = 0, attempt: int = 0, state: State = State.OK, name: str = "A"
) -> Sample:
    reason = "" if state is State.OK else "a PG was recovering"
    metrics = Metrics(iops, iops * 4096, 10, 10, 1.0)
    return Sample(SampleKey(name, CELL, client, repeat, attempt), state, metrics, 1, 2, reason)


def iops_of(*samples: Sample) -> tuple[float, ...]:
    return baselines_of(samples, source="a test").of("A", CELL).iops


def test_the_clients_of_a_repeat_are_summed_and_repeats_are_kept_apart() -> None:
    samples = [sample(10, "c0"), sample(20, "c1"), sample(11, "c0", 1), sample(21, "c1", 1)]
    assert iops_of(*samples) == (30, 32)
    assert baselines_of(samples, source="a test").of("A", CELL).n_clients == 2


def test_a_repeat_counts_only_if_all_its_clients_are_ok() -> None:
    assert iops_of(
        sample(10, "c0"), sample(20, "c1"), sample(11, "c0", 1), sample(21, "c1", 1, state=State.INVALID)
    ) == (30,)


def test_the_attempt_taken_again_counts_and_attempts_do_not_mix() -> None:
    assert iops_of(
        sample(10, "c0", state=State.OK),
        sample(1, "c1", state=State.FAILED),
        sample(12, "c0", attempt=1),
        sample(22, "c1", attempt=1),
    ) == (34,)
    with pytest.raises(InputError, match="recovering"):
        iops_of(sample(10, "c0"), sample(1, "c1", state=State.INVALID), sample(22, "c1", attempt=1))


def test_a_client_that_never_came_up_makes_the_repeat_not_count() -> None:
    assert iops_of(sample(10, "c0"), sample(11, "c0", 1), sample(21, "c1", 1)) == (32,)


def test_a_cell_without_a_repeat_that_counts_is_missing_with_its_reason() -> None:
    baselines = baselines_of([sample(1), sample(5, name="B", state=State.FAILED)], source="a test")
    assert baselines.missing == {("B", CELL): "failed: a PG was recovering"}
    with pytest.raises(InputError, match="a PG was recovering"):
        baselines.of("B", CELL)


def test_repeats_are_sorted_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what was measured and for what was lost alike."""
    asked: list[int] = []
    sorted_out = baselines_module.tried_at_places

    def counted(samples: SampleColumns, rows: Rows) -> dict[Place, Tried]:
        asked.append(len(rows))
        return sorted_out(samples, rows)

    monkeypatch.setattr(baselines_module, "tried_at_places", counted)
    found = baselines_of(
        [sample(1), sample(2, repeat=1, state=State.FAILED), sample(5, name="B")], source="a test"
    )
    assert asked == [3]
    assert found.lost == {("A", CELL): ("failed: a PG was recovering",)}


def test_clients_that_a_further_run_calls_otherwise_are_the_same(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.sqlite", create=True) as store:
        for run_id, (one, other) in (("r1", ("c0", "c1")), ("r2", ("vm-a", "vm-b"))):
            store.add_run(replace(example_run(), run_id=run_id))
            store.add_samples(run_id, [sample(10, one), sample(20, other)], fio_json=None)
        found = joined_baselines(store, store.run("r1"), [store.run("r2")]).of("A", CELL)
        assert (found.iops, found.n_clients, found.rounds) == ((30, 30), 2, (0, 1))
        store.add_run(replace(example_run(), run_id="r3"))
        store.add_samples("r3", [sample(10, "alone")], fio_json=None)
        with pytest.raises(InputError, match="no repeat has I/O from every client"):
            joined_baselines(store, store.run("r1"), [store.run("r3")]).of("A", CELL)


def test_no_io_at_all_is_no_baseline() -> None:
    baselines = baselines_of([sample(0.0)], source="a test")
    assert baselines.missing == {("A", CELL): "no repeat has I/O from every client"}


def test_the_default_comes_first() -> None:
    baselines = baselines_of([sample(1, name="B"), sample(1, name="A")], source="a test")
    assert baselines.configurations == ("A", "B")
