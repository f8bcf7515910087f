"""Evaluation: several workloads per applied configuration, resumed, on new volumes in each round."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from cephfit.cli.check import evaluate_command
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import Applied, Client, Health, KeepOnly, NullProgress
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.sample import Run, State, WorkloadSample
from cephfit.results.store.sample_store import Store
from cephfit.sweep.evaluation import evaluate
from cephfit.sweep.trial import Trial
from cephfit.traces.capturing import capture

CONFIGURATIONS = (Configuration("A"), Configuration("fast"), Configuration("refused"))


class Bench:
    """A target that records what was done to it, in order."""

    name = "bench"

    def __init__(self) -> None:
        self.log: list[str] = []

    def facts(self) -> Mapping[str, Any]:
        return {"fsid": "f"}

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        self.log.append(f"apply {configuration.name} {volume_nbytes}")
        mismatches = ("osd.0 runs 1, not 2",) if configuration.name == "refused" else ()
        return Applied(configuration.name, not mismatches, mismatches, {})

    def clients(self) -> Sequence[Client]:
        return (Client("c0", {}, 1 << 20, Path("/dev/null")),)

    def drop_caches(self) -> None:
        self.log.append("drop")

    def health(self) -> Health:
        return Health(True, ())

    def reset(self) -> None:
        self.log.append("reset")


class Work:
    """A workload that records its steps in the target's log, and fails once at a given run."""

    metric = "operations/s"

    def __init__(self, bench: Bench, name: str, *, fails_at: int = 0, dies_at: int = 0) -> None:
        self.bench, self.name = bench, name
        self.fails_at, self.dies_at, self.n_runs = fails_at, dies_at, 0
        self.seeds: list[int] = []
        self.evidence: Mapping[str, Any] = {}

    def description(self) -> Mapping[str, Any]:
        return {"version": 1, "name": self.name}

    def prepare(self, client: Client) -> None:
        self.bench.log.append(f"prepare {self.name}")

    def run(self, client: Client, seconds: float, *, seed: int) -> tuple[float, Mapping[str, Any]]:
        self.n_runs += 1
        self.seeds.append(seed)
        self.bench.log.append(f"run {self.name}")
        if self.n_runs == self.dies_at:
            raise KeyboardInterrupt
        if self.n_runs == self.fails_at:
            raise ClusterError("the server did not start")
        return 10.0, self.evidence

    def cleanup(self, client: Client) -> None:
        self.bench.log.append(f"cleanup {self.name}")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "results.sqlite", create=True)
    store.add_run(Run("r1", "s", "", "0" * 64, "bench", 7, 1))
    return store


def run(bench: Bench, works: Sequence[Work], store: Store, **others: Any) -> list[WorkloadSample]:
    configurations = others.pop("configurations", CONFIGURATIONS[:2])
    rounds = others.pop("rounds", 2)
    trials = [Trial(w, (1 + i) << 20, repeats=rounds, seconds=1.0, seed=7) for i, w in enumerate(works)]  # type: ignore[arg-type]
    return evaluate(
        bench,  # type: ignore[arg-type]
        configurations,
        trials,
        store=store,
        run_id="r1",
        progress=NullProgress(),
        **others,
    )


def test_a_configuration_is_applied_once_per_round_for_all_workloads_on_the_largest_volume(store: Store) -> None:
    bench = Bench()
    samples = run(bench, [Work(bench, "one"), Work(bench, "two")], store)
    assert Counter(line for line in bench.log if line.startswith("apply")) == {
        "apply A 2097152": 2,
        "apply fast 2097152": 2,
    }
    assert [s.state for s in samples] == [State.OK] * 8
    stored = store.workload_samples("r1")
    assert Counter((name, s.configuration, s.repeat) for name, s in stored) == {
        (name, configuration, repeat): 1
        for name in ("one", "two")
        for configuration in ("A", "fast")
        for repeat in (0, 1)
    }


def test_every_run_begins_with_prepared_data_and_cold_caches_and_every_round_with_new_volumes(
    store: Store,
) -> None:
    bench = Bench()
    run(bench, [Work(bench, "one")], store)
    round_ = ["apply", "prepare", "drop", "run", "cleanup"] * 2 + ["reset"]
    assert [line.split()[0] for line in bench.log] == round_ * 2


def test_the_random_choices_of_a_round_are_equal_on_all_configurations(store: Store) -> None:
    work = Work(bench := Bench(), "one")
    run(bench, [work], store)
    assert work.seeds[0] == work.seeds[1] != work.seeds[2] == work.seeds[3]


def test_a_killed_evaluation_continues_with_what_is_missing(store: Store) -> None:
    bench = Bench()
    with pytest.raises(KeyboardInterrupt):
        run(bench, [Work(bench, "one", dies_at=2), Work(bench, "two")], store)
    n_done = len(store.workload_samples("r1"))
    again = [Work(later := Bench(), "one"), Work(later, "two")]
    samples = run(later, again, store)
    assert 0 < n_done < 8
    assert (len(samples), sum(work.n_runs for work in again)) == (8, 8 - n_done)


def test_a_round_has_new_volumes_also_if_a_kill_came_before_those_of_the_last_one_were_removed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed() -> None:
        raise KeyboardInterrupt

    bench = Bench()
    monkeypatch.setattr(bench, "reset", killed)
    with pytest.raises(KeyboardInterrupt):
        run(bench, [Work(bench, "one")], store)
    later = Bench()
    with pytest.raises(KeyboardInterrupt):
        run(later, [Work(later, "one", dies_at=2)], store)
    assert [line.split()[0] for line in later.log][:2] == ["reset", "apply"]
    last = Bench()
    run(last, [Work(last, "one")], store)
    assert [line.split()[0] for line in last.log] == ["apply", "prepare", "drop", "run", "cleanup", "reset"]


def test_a_complete_evaluation_touches_the_target_no_more(store: Store) -> None:
    bench = Bench()
    run(bench, [Work(bench, "one")], store)
    run(done := Bench(), [Work(done, "one")], store)
    assert done.log == []


def test_a_failed_run_is_stored_and_repeated_after_the_configuration_is_applied_again(store: Store) -> None:
    bench = Bench()
    samples = run(bench, [Work(bench, "one", fails_at=1)], store, rounds=1)
    assert [(s.attempt, s.state) for s in samples if s.state is State.FAILED] == [(0, State.FAILED)]
    assert sum(s.state is State.OK for s in samples) == 2
    assert [line.split()[0] for line in bench.log].count("apply") == 3


def test_a_configuration_that_does_not_take_effect_gives_failed_samples_only(store: Store) -> None:
    work = Work(bench := Bench(), "one")
    samples = run(bench, [work], store, rounds=1, configurations=CONFIGURATIONS)
    assert {s.state for s in samples if s.configuration == "refused"} == {State.FAILED}
    assert all("osd.0 runs 1, not 2" in s.reason for s in samples if s.configuration == "refused")
    assert work.n_runs == 2


def test_the_first_round_on_the_default_is_recorded(store: Store) -> None:
    bench = Bench()

    @contextmanager
    def record(workload: str, device: Path) -> Iterator[KeepOnly]:
        bench.log.append(f"record {workload} {device}")
        yield lambda begin_ns, end_ns: bench.log.append(f"keep of {workload} {begin_ns} to {end_ns}")
        bench.log.append(f"end of {workload}")

    timed = Work(bench, "two")
    timed.evidence = {"started_ns": 5, "finished_ns": 8}
    run(bench, [Work(bench, "one"), timed], store, record=record)
    assert [line for line in bench.log if line.startswith("keep")] == ["keep of two 5 to 8"]
    assert bench.log.index("end of two") < bench.log.index("keep of two 5 to 8")
    recorded = sorted(line for line in bench.log if line.startswith("record"))
    assert recorded == ["record one /dev/null", "record two /dev/null"]


def test_workloads_of_one_name_are_refused(store: Store) -> None:
    bench = Bench()
    with pytest.raises(InputError, match="two workloads have the same name: one"):
        run(bench, [Work(bench, "one"), Work(bench, "one")], store)


def test_samples_of_a_changed_workload_are_not_mixed_with_earlier_ones(store: Store) -> None:
    bench = Bench()
    run(bench, [Work(bench, "one")], store, rounds=1)
    changed = Work(bench, "one")
    changed.description = lambda: {"version": 1, "name": "changed"}  # type: ignore[method-assign]
    with pytest.raises(InputError, match="other options or on another cluster"):
        run(bench, [changed], store)


def test_a_recording_replaces_an_earlier_one_and_no_other_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(capture, "capturing", lambda device, place: nullcontext())
    (tmp_path / "mail").mkdir()
    for name in ("nbd0.blktrace.0", "nbd0.capture.json", "letters.txt"):
        (tmp_path / "mail" / name).touch()
    with evaluate_command._recorder(tmp_path)("mail", Path("/dev/nbd1")):
        pass
    assert [path.name for path in (tmp_path / "mail").iterdir()] == ["letters.txt"]
