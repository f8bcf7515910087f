"""The loop: every run once, repetitions after faults, and continuation after any interruption."""

import errno
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ends_of_programs import EndOfProgramError, StopsAfter
from planned_samples import ok_keys, whole_plan
from simulated_truth import true_iops

from cephfit.ceph.admin.answers import RefusedError
from cephfit.core.errors import ClusterError, HostError, InputError, StoreError
from cephfit.core.protocols import Applied, Health, NullProgress
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.sample import Run, SampleKey, State
from cephfit.measure.surveillance import wait_until_healthy
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.run_progress import RunProgress, times_of
from cephfit.sweep.execution.runner import run_sweep
from cephfit.sweep.sweep_plan import Sweep, run_seconds
from cephfit.targets.simulated import SimulatedEngine, SimulatedTarget, Simulation, simulated_target


def measure(sweep: Sweep, target: SimulatedTarget, store: Store, *, resume: Run | None = None) -> Run:
    return run_sweep(sweep, target, store, NullProgress(), resume=resume, health_limit_seconds=5)


def test_a_sweep_gives_every_sample_once_and_is_finished(small_sweep: Sweep, store: Store) -> None:
    run = measure(small_sweep, SimulatedTarget(), store)
    samples = store.samples(run.run_id)
    assert run.finished
    assert ok_keys(samples) == whole_plan(small_sweep)
    assert len(samples) == 3 * 4 * 2 * 2
    assert run.facts["simulated"] is True
    assert {s.evidence["simulated"] for s in samples} == {True}
    assert all(s.evidence["health"]["looks"] >= 2 for s in samples)
    applied = store.applied(run.run_id)
    assert Counter((repeat, a.configuration) for repeat, a in applied) == Counter(
        (r, c.name) for r in range(2) for c in small_sweep.configurations
    )


def test_the_measured_rates_are_the_simulated_ones(small_sweep: Sweep, store: Store) -> None:
    """Noise of 1 % per client: the mean of 2 repeats of 2 clients is within 2.5 % of the true rate (5 sigma)."""
    target = SimulatedTarget(Simulation(noise=0.01))
    run = measure(small_sweep, target, store)
    baselines = baselines_of(store.samples(run.run_id), source="test")
    for configuration in small_sweep.configurations:
        for cell in small_sweep.measurement.cells:
            truth = 2 * true_iops(configuration, cell, n_clients=2, iodepth=4)
            measured = baselines.of(configuration.name, cell).iops
            assert sum(measured) / len(measured) == pytest.approx(truth, rel=0.025)


def test_faulty_samples_are_repeated_and_kept_with_their_reasons(small_sweep: Sweep, store: Store) -> None:
    target = SimulatedTarget(Simulation(unhealthy=0.15, miscount=0.15, failing=0.15, seed=3))
    sweep = replace(small_sweep, measurement=replace(small_sweep.measurement, max_attempts=8))
    run = measure(sweep, target, store)
    samples = store.samples(run.run_id)
    assert ok_keys(samples) == whole_plan(sweep)
    reasons = " ".join(s.reason for s in samples)
    assert "OSD_DOWN" in reasons
    assert "the simulated counter counted" in reasons
    assert "no result" in reasons
    assert "another client of the same run" in reasons
    bad = {
        (s.key.configuration, s.key.cell, s.key.repeat, s.key.attempt) for s in samples if s.state is not State.OK
    }
    good = {(s.key.configuration, s.key.cell, s.key.repeat, s.key.attempt) for s in samples if s.state is State.OK}
    assert bad
    assert not bad & good, "clients of one run share its fate"


def test_a_cell_that_always_fails_is_given_up_and_the_sweep_continues(small_sweep: Sweep, store: Store) -> None:
    run = measure(small_sweep, SimulatedTarget(Simulation(failing=1.0)), store)
    samples = store.samples(run.run_id)
    assert run.finished
    assert {s.key.attempt for s in samples} == {0, 1, 2}
    assert {s.state for s in samples} == {State.FAILED, State.INVALID}
    progresses = RunProgress(small_sweep, samples).all()
    assert [(s.ok, s.failed, s.left) for s in progresses] == [(0, 48 - s.invalid, 0) for s in progresses]


def test_a_setting_without_effect_fails_its_cells_and_the_sweep_continues(
    small_sweep: Sweep, store: Store
) -> None:
    run = measure(small_sweep, SimulatedTarget(Simulation(refuse="blob")), store)
    samples = store.samples(run.run_id)
    blob = [s for s in samples if s.key.configuration == "blob"]
    assert {s.state for s in blob} == {State.FAILED}
    assert all("bluestore_max_blob_size_hdd = 512K did not take effect" in s.reason for s in blob)
    assert len(blob) == 4 * 2 * 2
    run_progress = RunProgress(small_sweep, samples)
    assert run_progress.of_configuration("blob").left == 0
    assert run_progress.of_configuration("no-deferred").ok == 16


def test_a_simulation_refuses_only_existing_configurations(small_sweep: Sweep, store: Store) -> None:
    with pytest.raises(InputError, match="no configuration 'blop'") as caught:
        measure(small_sweep, SimulatedTarget(Simulation(refuse="blop"), name="sim:refuse=blop"), store)
    assert caught.value.where == "--target sim:refuse=blop"
    assert "'blob'" in caught.value.remedy
    assert not store.runs()


def test_an_option_that_ceph_no_longer_has_is_skipped_by_name(small_text: str, store: Store) -> None:
    old = small_text.replace("bluestore_max_blob_size_hdd: 512K", "osd_op_threads: 8")
    run = measure(parse_sweep(old, file="f"), SimulatedTarget(), store)
    blob = [s for s in store.samples(run.run_id) if s.key.configuration == "blob"]
    assert {s.state for s in blob} == {State.SKIPPED}
    assert all("osd_op_threads" in s.reason for s in blob)


@pytest.mark.parametrize("n_runs", [0, 1, 3, 4, 5, 11, 23])
def test_an_interrupted_run_continues_to_the_same_samples(small_sweep: Sweep, tmp_path: Path, n_runs: int) -> None:
    """The simulation's noise depends on the cell, not on the time: even the figures must be equal."""

    def figures(store: Store, run: Run) -> list[tuple[SampleKey, object]]:
        found = ((s.key, s.metrics) for s in store.samples(run.run_id))
        return sorted(found, key=lambda pair: repr(pair[0]))

    simulation = Simulation(unhealthy=0.1, seed=9)
    with Store.open(tmp_path / "unbroken.sqlite", create=True) as store:
        unbroken = figures(store, measure(small_sweep, SimulatedTarget(simulation), store))
    with Store.open(tmp_path / "broken.sqlite", create=True) as store:
        target = SimulatedTarget(simulation)
        with pytest.raises(EndOfProgramError):
            run_sweep(small_sweep, target, store, NullProgress(), resume=None, engine=StopsAfter(target, n_runs))
        unfinished = store.unfinished_run(sweep_digest=small_sweep.digest, target="sim")
        assert unfinished is not None
        done = measure(small_sweep, SimulatedTarget(simulation), store, resume=unfinished)
        assert done.run_id == unfinished.run_id
        assert figures(store, done) == unbroken
        assert store.unfinished_run(sweep_digest=small_sweep.digest, target="sim") is None


def test_a_run_of_another_sweep_is_not_continued(small_sweep: Sweep, small_text: str, store: Store) -> None:
    run = measure(small_sweep, SimulatedTarget(), store)
    other = parse_sweep(small_text.replace("seed: 7", "seed: 8"), file="f")
    with pytest.raises(InputError, match="another sweep"):
        measure(other, SimulatedTarget(), store, resume=run)


class Cluster(SimulatedTarget):
    """A simulated cluster with an identifier, like a real one."""

    def __init__(self, fsid: str) -> None:
        super().__init__()
        self.fsid = fsid

    def facts(self) -> Mapping[str, Any]:
        return {**super().facts(), "fsid": self.fsid}


def test_a_run_does_not_continue_on_another_cluster_of_the_same_name(small_sweep: Sweep, store: Store) -> None:
    target = Cluster("one")
    with pytest.raises(EndOfProgramError):
        run_sweep(small_sweep, target, store, NullProgress(), resume=None, engine=StopsAfter(target, 3))
    begun = store.run()
    with pytest.raises(InputError, match="another cluster"):
        measure(small_sweep, Cluster("two"), store, resume=begun)
    assert measure(small_sweep, Cluster("one"), store, resume=begun).finished


class DeadCluster(SimulatedTarget):
    """A cluster that loses an OSD permanently after some checks of its health."""

    looks = 0

    def health(self) -> Health:
        self.looks += 1
        return Health(ok=True) if self.looks < 30 else Health(ok=False, reasons=("OSD_DOWN: 1 osds down",))


def test_a_cluster_that_stays_unhealthy_ends_the_sweep_without_loss(small_sweep: Sweep, store: Store) -> None:
    with pytest.raises(ClusterError, match="OSD_DOWN") as caught:
        run_sweep(small_sweep, DeadCluster(), store, NullProgress(), resume=None, health_limit_seconds=0.6)
    assert "run the same command again to continue" in caught.value.remedy
    run = store.run()
    before = ok_keys(store.samples(run.run_id))
    assert sum(before.values()) > 0
    assert not run.finished
    done = measure(small_sweep, SimulatedTarget(), store, resume=run)
    assert ok_keys(store.samples(done.run_id)) == whole_plan(small_sweep)


def test_waiting_ends_when_the_cluster_is_healthy_again() -> None:
    target = SimulatedTarget()
    target.become_unhealthy()
    notes: list[str] = []
    wait_until_healthy(target, limit_seconds=5, note=notes.append, sleep=lambda _: None)
    assert len(notes) == 1
    assert "OSD_DOWN" in notes[0]


def test_the_remedy_for_endless_scrubs_is_to_pause_them() -> None:
    class Scrubbing(SimulatedTarget):
        def health(self) -> Health:
            return Health(ok=False, reasons=("3 PGs active+clean+scrubbing+deep",))

    with pytest.raises(ClusterError) as caught:
        wait_until_healthy(Scrubbing(), limit_seconds=0, note=lambda _: None)
    assert "ceph osd set nodeep-scrub" in caught.value.remedy


class Notes(NullProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


class WithoutDropping(SimulatedTarget):
    """A cluster that refuses to drop its caches for some attempts."""

    def __init__(self, error: ClusterError, tries: int = 99) -> None:
        super().__init__()
        self.error, self.tries = error, tries

    def drop_caches(self) -> None:
        self.tries -= 1
        if self.tries >= 0:
            raise self.error


def test_a_failed_drop_of_caches_is_noted_and_tried_again(small_sweep: Sweep, store: Store) -> None:
    gone = RefusedError("`cache drop` was refused: no such daemon", where="osd.1", code=errno.ENXIO)
    progress = Notes()
    run_sweep(small_sweep, WithoutDropping(gone, tries=2), store, progress, resume=None, health_limit_seconds=5)
    (note,) = [note for note in progress.notes if "cache drop" in note]
    assert note == "osd.1: `cache drop` was refused: no such daemon; trying again for up to 5.0 s"


def test_a_lasting_refusal_is_not_tried_again(small_sweep: Sweep, store: Store) -> None:
    key = RefusedError("`cache drop` was refused: Permission denied", where="osd.1", code=errno.EACCES)
    target = WithoutDropping(key)
    with pytest.raises(RefusedError, match="Permission denied"):
        run_sweep(small_sweep, target, store, NullProgress(), resume=None, health_limit_seconds=3)
    assert target.tries == 98


class FullStore(Store):
    """A store on a disk that is full after some fio runs."""

    free_runs = 5

    def add_samples(self, run_id, samples, *, fio_json):  # type: ignore[no-untyped-def]
        if self.free_runs == 0:
            raise StoreError("database or disk is full")
        self.free_runs -= 1
        super().add_samples(run_id, samples, fio_json=fio_json)


def test_a_full_disk_of_the_store_loses_nothing(small_sweep: Sweep, tmp_path: Path) -> None:
    path = tmp_path / "full.sqlite"
    with FullStore.open(path, create=True) as store, pytest.raises(StoreError, match="full"):
        measure(small_sweep, SimulatedTarget(), store)
    with Store.open(path) as store:
        run = store.run()
        assert sum(ok_keys(store.samples(run.run_id)).values()) == 5 * 2
        done = measure(small_sweep, SimulatedTarget(), store, resume=run)
        assert ok_keys(store.samples(done.run_id)) == whole_plan(small_sweep)


class NoFio(SimulatedEngine):
    def facts(self):  # type: ignore[no-untyped-def]
        raise HostError("the program fio is missing")


class Untouchable(SimulatedTarget):
    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        raise AssertionError("the target was changed")


def test_a_missing_fio_is_found_before_anything_changes(small_sweep: Sweep, store: Store) -> None:
    target = Untouchable()
    with pytest.raises(HostError):
        run_sweep(small_sweep, target, store, NullProgress(), resume=None, engine=NoFio(target))
    assert store.runs() == []


class TypingError(SimulatedTarget):
    """A cluster with a list of its options."""

    def catalogue(self) -> "TypingError":
        return self

    def find(self, key: str) -> str | None:
        return key if key in self.names() else None

    def names(self) -> tuple[str, ...]:
        return ("bluestore_max_blob_size", "bluestore_prefer_deferred_size_hdd")


def test_a_mistyped_option_ends_the_sweep_before_it_begins(small_text: str, store: Store) -> None:
    sweep = parse_sweep(small_text.replace("bluestore_max_blob_size_hdd", "bluestore_max_blob_siez"), file="f")
    with pytest.raises(InputError) as caught:
        measure(sweep, TypingError(), store)
    assert caught.value.where == "sweep small, line 8, configuration blob"
    assert "did you mean bluestore_max_blob_size" in caught.value.remedy
    assert store.runs() == []


def test_the_expected_time_is_learnt_from_the_store(small_sweep: Sweep, store: Store) -> None:
    """A pace of 0.05 makes a run of 1.2 s take 0.06 s, without overhead; applying takes no time."""
    measure(small_sweep, simulated_target("sim:pace=0.05"), store)
    times = times_of(store, "sim:pace=0.05")
    assert times is not None
    assert times.cell_seconds == 0.0
    assert times.apply_seconds < 0.1
    assert times_of(store, "lab:default") is None


def test_the_time_of_warming_is_learnt_separately(small_text: str, store: Store) -> None:
    """A simulation reads nothing, so warming takes no time, for volumes of any size."""
    sweep = parse_sweep(small_text.rstrip() + "\n  cache: warm\n", file="f")
    measure(sweep, simulated_target("sim:pace=0.05"), store)
    times = times_of(store, "sim:pace=0.05")
    assert times is not None
    assert times.warm_nbytes_per_s == float("inf")
    assert run_seconds(sweep.measurement, times) == pytest.approx(1.2)
