"""Verification: interleaved, stored at once, resumed; with a workload and a target of the test."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cephfit.ceph.environment.kernel_values import HostLockedError
from cephfit.cli.check.verify_command import command
from cephfit.core.errors import CephfitError, ClusterError, HostError, InputError, LackingError
from cephfit.core.protocols import Applied, Client, Health, NullProgress
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.measurement import CacheCondition
from cephfit.core.values.sample import Run, State, WorkloadSample
from cephfit.measure.block_device import read_through
from cephfit.results.store.sample_store import Store
from cephfit.sweep.trial import CONDITIONS, Trial, conditions_of, contents_of
from cephfit.sweep.verification import order_of, run_once, verify

CONFIGURATIONS = (Configuration("A"), Configuration("fast"), Configuration("slow"))
SPEED = {"A": 100.0, "fast": 150.0, "slow": 50.0}


class Bench:
    """A target with one volume per configuration; volumes and their notes survive the object."""

    name = "bench"

    def __init__(self, disks: dict[str, dict[str, str]], *, fsid: str = "made once") -> None:
        self.disks = disks
        self.fsid = fsid
        self.applied = ""
        self.sick = False
        self.refused: set[str] = set()
        self.faults: list[CephfitError] = []  # of the next applications
        self.n_drops = 0
        self.device: Path | None = None

    def facts(self) -> Mapping[str, Any]:
        return {"fsid": self.fsid}

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        assert (n_clients, fill) == (1, False)
        if self.faults:
            raise self.faults.pop(0)
        self.applied = configuration.name
        self.disks.setdefault(configuration.name, {})
        mismatches = ("osd.0 runs 1, not 2",) if configuration.name in self.refused else ()
        return Applied(configuration.name, not mismatches, mismatches, {})

    def clients(self) -> Sequence[Client]:
        return (Client("c0", {}, 1 << 20, self.device),)

    def drop_caches(self) -> None:
        self.n_drops += 1

    def health(self) -> Health:
        return Health(not self.sick, ("OSD_DOWN: 1 osds down",) if self.sick else ())

    def reset(self) -> None:
        pass

    def close(self) -> None:
        pass

    def note_on(self, client: Client, key: str) -> str | None:
        return self.disks[self.applied].get(key)

    def set_note(self, client: Client, key: str, text: str | None) -> None:
        if text is None:
            self.disks[self.applied].pop(key, None)
        else:
            self.disks[self.applied][key] = text


class Work:
    """A workload that records its calls, and fails on request."""

    name = "work"
    metric = "tps"

    def __init__(self, bench: Bench, scale: int = 1) -> None:
        self.bench = bench
        self.scale = scale
        self.prepared: list[str] = []
        self.ran: list[str] = []
        self.die_at_run: int | None = None
        self.fail_at_run: int | None = None
        self.fails_on: dict[str, CephfitError] = {}
        self.sicken_at_run: int | None = None
        self.stays_mounted = False
        self.busy_for = 0

    def description(self) -> Mapping[str, Any]:
        return {"version": 1, "scale": self.scale, "settings": {"jit": "off"}}

    def prepare(self, client: Client) -> None:
        self.prepared.append(self.bench.applied)

    def run(self, client: Client, seconds: float, *, seed: int) -> tuple[float, Mapping[str, Any]]:
        self.ran.append(self.bench.applied)
        if len(self.ran) == self.die_at_run:
            raise KeyboardInterrupt
        if len(self.ran) == self.fail_at_run:
            raise ClusterError("the server did not start")
        if error := self.fails_on.get(self.bench.applied):
            raise error
        if len(self.ran) == self.sicken_at_run:
            self.bench.sick = True
            time.sleep(0.7)  # longer than the health watch's pause
            self.bench.sick = False
        return SPEED[self.bench.applied], {"seconds": seconds}

    def cleanup(self, client: Client) -> None:
        if self.stays_mounted:
            raise HostError("umount: target is busy")
        if self.busy_for and self.ran:
            self.busy_for -= 1
            raise ClusterError("its cleanup ended with code 32")


class CountedWork(Work):
    """A workload whose number of operations can be set."""

    def __init__(self, bench: Bench, scale: int = 1) -> None:
        super().__init__(bench, scale)
        self.counted: list[tuple[str, int]] = []

    def run_operations(
        self, client: Client, n_operations: int, seconds: float, *, seed: int
    ) -> tuple[float, Mapping[str, Any]]:
        value, _ = self.run(client, seconds, seed=seed)
        self.counted.append((self.bench.applied, n_operations))
        return value, {"operations": n_operations}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "results.sqlite", create=True)
    store.add_run(Run("r1", "s", "", "0" * 64, "bench", 7, 1))
    return store


def trial_of(work: Work, **changes: Any) -> Trial:
    return Trial(**{
        "workload": work, "volume_nbytes": 1 << 20, "repeats": 3, "seconds": 1.0, "seed": 7, **changes,
    })  # fmt: skip


def run(bench: Bench, work: Work, store: Store, *, equal_work: bool = False, **changes: Any) -> list[Any]:
    trial, progress = trial_of(work, **changes), NullProgress()
    return verify(bench, CONFIGURATIONS, trial, store=store, run_id="r1", progress=progress, equal_work=equal_work)


def test_rounds_have_every_configuration_once_in_an_order_by_the_seed() -> None:
    trial = trial_of(Work(Bench({})), repeats=8)
    order = order_of(CONFIGURATIONS, trial)
    for repeat in range(8):
        assert sorted(c.name for r, c in order if r == repeat) == ["A", "fast", "slow"]
    assert order == order_of(CONFIGURATIONS, trial)
    assert len({tuple(c.name for r, c in order if r == repeat) for repeat in range(8)}) > 1


def test_every_sample_is_stored_and_each_volume_prepared_once(store: Store) -> None:
    bench = Bench({})
    work = Work(bench)
    samples = run(bench, work, store)
    assert {(s.configuration, s.repeat, s.value) for s in samples} == {
        (name, repeat, SPEED[name]) for name in SPEED for repeat in range(3)
    }
    assert sorted(work.prepared) == ["A", "fast", "slow"]


def test_a_cleanup_that_fails_is_a_failed_run_which_is_tried_again(store: Store) -> None:
    work = Work(Bench({}))
    work.busy_for = 2
    assert len(run(work.bench, work, store)) > 9
    states = Counter(s.state for _, s in store.workload_samples("r1"))
    assert states[State.OK] == 9
    assert 1 <= states[State.FAILED] <= 2


def test_a_killed_verification_continues(store: Store) -> None:
    disks: dict[str, dict[str, str]] = {}
    bench = Bench(disks)
    work = Work(bench)
    work.die_at_run = 8  # three volumes are new: six runs make the first round
    with pytest.raises(KeyboardInterrupt):
        run(bench, work, store)
    assert len(store.workload_samples("r1")) == 4

    bench = Bench(disks)
    again = Work(bench)
    samples = run(bench, again, store)
    assert len(samples) == 9
    assert len({(s.configuration, s.repeat) for s in samples}) == 9
    assert len(again.ran) == 5
    assert not set(again.prepared) & set(work.prepared), "the volumes had been prepared already"


def test_runs_of_equal_work_do_what_the_default_does_in_their_seconds(store: Store) -> None:
    work = CountedWork(Bench({}))
    samples = run(work.bench, work, store, equal_work=True, seconds=2.0)
    assert work.ran[:2] == ["A", "A"], "it settles, and its operations are counted"
    assert sorted(set(work.counted)) == [("A", 200), ("fast", 200), ("slow", 200)], "100 per second for 2 s"
    assert len(work.counted) == 9
    assert {s.evidence[CONDITIONS]["operations"] for s in samples} == {200}


def test_a_continued_verification_of_equal_work_keeps_the_count(store: Store, monkeypatch: pytest.MonkeyPatch):
    disks: dict[str, dict[str, str]] = {}
    work = CountedWork(Bench(disks))
    work.die_at_run = 8
    with pytest.raises(KeyboardInterrupt):
        run(work.bench, work, store, equal_work=True)
    monkeypatch.setitem(SPEED, "A", 90.0)
    again = CountedWork(Bench(disks))
    run(again.bench, again, store, equal_work=True)
    assert {n for _, n in (*work.counted, *again.counted)} == {100}


def test_runs_of_equal_time_and_of_equal_work_are_not_mixed(store: Store) -> None:
    work = CountedWork(Bench({}))
    run(work.bench, work, store)
    n_runs = len(work.ran)
    with pytest.raises(InputError, match="operations was not recorded, now to be counted"):
        run(work.bench, work, store, equal_work=True)
    assert len(work.ran) == n_runs


def test_equal_work_needs_a_workload_that_counts(store: Store) -> None:
    work = Work(Bench({}))
    with pytest.raises(InputError, match="a number of operations cannot be set for the workload work"):
        run(work.bench, work, store, equal_work=True)
    assert not work.ran


def test_operations_that_cannot_be_counted_end_the_verification(store: Store) -> None:
    work = CountedWork(Bench({}))
    work.fails_on["A"] = ClusterError("the server did not start")
    with pytest.raises(ClusterError, match="the operations on A were not counted: the server did not start"):
        run(work.bench, work, store, equal_work=True)
    assert not store.workload_samples("r1")


def test_a_used_volume_is_prepared_again_so_that_all_have_the_same_age(store: Store) -> None:
    bench = Bench({})
    traced, verified = Work(bench), Work(bench)
    assert run_once(bench, CONFIGURATIONS[0], trial_of(traced), progress=NullProgress()).state is State.OK
    run(bench, verified, store)
    assert sorted(verified.prepared) == ["A", "fast", "slow"]
    assert Counter(verified.ran) == {"A": 4, "fast": 4, "slow": 4}, "the first run on new data is not counted"


def test_an_unhealthy_moment_makes_the_run_invalid_and_it_is_repeated(store: Store) -> None:
    bench = Bench({})
    work = Work(bench)
    work.sicken_at_run = 2
    samples = run(bench, work, store, repeats=1)
    (invalid,) = [s for s in samples if s.state is State.INVALID]
    assert "OSD_DOWN" in invalid.reason
    assert sum(s.state is State.OK for s in samples) == 3
    assert [s.attempt for s in samples if s.configuration == invalid.configuration] == [0, 1]


def test_a_run_without_a_result_is_failed_and_repeated(store: Store) -> None:
    bench = Bench({})
    work = Work(bench)
    work.fail_at_run = 1
    samples = run(bench, work, store, repeats=1)
    (failed,) = [s for s in samples if s.state is State.FAILED]
    assert failed.reason == "the server did not start"
    assert sum(s.state is State.OK for s in samples) == 3


def test_a_configuration_that_does_not_take_effect_gives_no_value(store: Store) -> None:
    bench = Bench({})
    bench.refused = {"fast"}
    samples = run(bench, Work(bench), store, repeats=1)
    refused = [s for s in samples if s.configuration == "fast"]
    assert {(s.state, s.value, s.reason) for s in refused} == {(State.FAILED, None, "osd.0 runs 1, not 2")}


def test_a_temporary_fault_of_this_machine_is_one_failed_run(store: Store) -> None:
    bench = Bench({})
    died = iter([HostError("the program behind /dev/nbd0 of client c0 has died", where="bench")])

    def drop_caches() -> None:
        if error := next(died, None):
            raise error

    bench.drop_caches = drop_caches  # type: ignore[method-assign]
    samples = run(bench, Work(bench), store, repeats=1)
    (failed,) = [s for s in samples if s.state is not State.OK]
    assert (failed.state, failed.reason) == (
        State.FAILED, "bench: the program behind /dev/nbd0 of client c0 has died",
    )  # fmt: skip
    assert sorted(s.configuration for s in samples if s.state is State.OK) == ["A", "fast", "slow"]


def test_a_host_lost_during_apply_is_one_failed_run(store: Store) -> None:
    bench = Bench({})
    bench.faults = [HostError("the SSH connection broke: the host hung up", where="node1")]
    samples = run(bench, Work(bench), store, repeats=1)
    (failed,) = [s for s in samples if s.state is not State.OK]
    assert (failed.state, failed.value) == (State.FAILED, None)
    assert failed.reason == "node1: the SSH connection broke: the host hung up"
    assert sorted(s.configuration for s in samples if s.state is State.OK) == ["A", "fast", "slow"]


@pytest.mark.parametrize(
    "error",
    [
        LackingError("login was refused", where="node1"),
        HostLockedError("the kernel's values here are changed by another cephfit", where="node1"),
        ClusterError("osd.0 does not start"),
    ],
)
def test_a_fault_of_every_configuration_ends_the_verification_at_once(error: CephfitError, store: Store) -> None:
    bench = Bench({})
    bench.faults = [error]
    with pytest.raises(type(error), match=error.what):
        run(bench, Work(bench), store)
    assert store.workload_samples("r1") == []


def test_the_cause_of_an_end_precedes_errors_of_the_cleanup(store: Store) -> None:
    bench = Bench({})
    work = Work(bench)
    work.stays_mounted = True
    work.fails_on = dict.fromkeys(SPEED, LackingError("PostgreSQL's programs are not installed"))
    bench.disks = {name: {"prepared": contents_of(work, "verification of r1")} for name in SPEED}
    message = r"^PostgreSQL's programs are not installed. Then cleanup failed: umount: target is busy$"
    with pytest.raises(LackingError, match=message):
        run(bench, work, store)


def test_the_same_command_repeats_a_run_that_failed_three_times(store: Store) -> None:
    bench = Bench({})
    work = Work(bench)
    work.fails_on = {"slow": ClusterError("the disk is gone")}
    samples = run(bench, work, store, repeats=1)
    assert [s.state for s in samples if s.configuration == "slow"] == [State.FAILED] * 3
    again = Work(bench)  # the disk is back
    samples = run(bench, again, store, repeats=1)
    assert [(s.attempt, s.state) for s in samples if s.configuration == "slow"][2:] == [
        (2, State.FAILED),
        (3, State.OK),
    ]
    assert set(again.ran) == {"slow"}, "runs that are ok are not repeated"


@pytest.mark.parametrize(
    "error", [LackingError("PostgreSQL's programs are not installed"), InputError("the volume is too small")]
)
def test_a_lasting_fault_ends_the_verification_at_once(error: CephfitError, store: Store) -> None:
    bench = Bench({})
    work = Work(bench)
    work.fails_on = dict.fromkeys(SPEED, error)
    with pytest.raises(type(error), match=error.what):
        run(bench, work, store)
    assert store.workload_samples("r1") == []
    assert len(run(bench, Work(bench), store, repeats=1)) == 3


def test_runs_under_other_options_are_not_mixed_and_the_options_are_named(store: Store) -> None:
    bench = Bench({})
    run(bench, Work(bench), store, repeats=1)
    with pytest.raises(InputError, match=r"with other options .*: scale was 1, now 5, seconds was 1.0, now 2.0\n"):
        run(bench, Work(bench, scale=5), store, repeats=1, seconds=2.0)


def test_runs_that_do_not_count_allow_other_options(store: Store) -> None:
    bench = Bench({})
    work = Work(bench)
    work.fails_on = dict.fromkeys(SPEED, ClusterError("no end within 1 s"))
    run(bench, work, store, repeats=1)
    samples = run(bench, Work(bench), store, repeats=1, seconds=2.0)
    assert sum(s.state is State.OK for s in samples) == 3


def test_runs_and_volumes_with_options_as_text_continue(store: Store) -> None:
    bench = Bench(
        {name: {"prepared": "Work(scale=1, settings={'jit': 'off'}) for verification of r1"} for name in SPEED}
    )
    earlier = {**conditions_of(bench, trial_of(Work(bench))), "workload": "Work(scale=1, settings={'jit': 'off'})"}
    sample = WorkloadSample("A", 0, 0, State.OK, "tps", 100.0, 1, 2, evidence={CONDITIONS: earlier})
    store.add_workload_sample("r1", "work", sample)
    work = Work(bench)
    assert len(run(bench, work, store, repeats=1)) == 3
    assert (sorted(work.ran), work.prepared) == (["fast", "slow"], [])
    with pytest.raises(InputError, match=r"scale was 1, now 2\n"):
        run(bench, Work(bench, scale=2), store, repeats=1)


def test_caches_are_in_the_requested_condition(store: Store, tmp_path: Path) -> None:
    bench = Bench({})
    cold = trial_of(Work(bench))
    assert run_once(bench, CONFIGURATIONS[0], cold, progress=NullProgress()).state is State.OK
    assert bench.n_drops == 1

    warm = trial_of(Work(bench), cache=CacheCondition.WARM)
    volume = tmp_path / "volume"
    volume.write_bytes(bytes(3 * MIB))
    bench.device = volume
    sample = run_once(bench, CONFIGURATIONS[0], warm, progress=NullProgress())
    assert (sample.state, bench.n_drops) == (State.OK, 1)
    assert sample.evidence["trial"]["cache"] == "warm"
    assert read_through(volume) == 3 * MIB
    bench.device = tmp_path / "gone"
    assert (
        "the device could not be read" in run_once(bench, CONFIGURATIONS[0], warm, progress=NullProgress()).reason
    )

    run(bench, Work(bench), store, repeats=1)
    with pytest.raises(InputError, match="with other options"):
        run(bench, Work(bench), store, repeats=1, cache=CacheCondition.WARM)


def test_runs_on_two_clusters_are_not_mixed(store: Store) -> None:
    bench = Bench({})
    run(bench, Work(bench), store, repeats=1)
    bench.name = "another bench"
    with pytest.raises(InputError, match="another cluster"):
        run(bench, Work(bench), store, repeats=2)
    again = Bench({}, fsid="made anew under the old name")
    with pytest.raises(InputError, match="another cluster"):
        run(again, Work(again), store, repeats=2)


def test_only_configurations_of_the_run_can_be_verified(tmp_path: Path) -> None:
    text = """
schema_version: 1
name: small
description: one cell
configurations:
  fast: {ceph: {osd: {osd_max_backfills: 3}}}
measurement:
  sizes: [4K]
  patterns: [read]
  clients: 1
  volume_size: 32M
  repeats: 2
  ramp_seconds: 0
  run_seconds: 1
  ioengine: libaio
  iodepth: 1
  direct: true
  cache: cold
  seed: 1
"""
    location, file = tmp_path / "results.sqlite", tmp_path / "small.yaml"
    with Store.open(location, create=True) as store:
        store.add_run(Run("r1", "small", text, "0" * 64, "sim", 1, 1))
    file.write_text(text.replace("backfills: 3", "backfills: 4"))
    arguments = ["--sweep", str(file), "--store", str(location), "--run", "r1", "--target", "sim"]
    refused = CliRunner().invoke(command, arguments).exception
    assert isinstance(refused, InputError)
    assert "differ from those that run r1 measured" in str(refused)


def test_data_of_another_scale_is_prepared_again(tmp_path: Path) -> None:
    disks: dict[str, dict[str, str]] = {}
    for number, scale in enumerate((1, 2)):
        with Store.open(tmp_path / f"{number}.sqlite", create=True) as store:
            store.add_run(Run("r1", "s", "", "0" * 64, "bench", 7, 1))
            bench = Bench(disks)
            work = Work(bench, scale)
            run(bench, work, store, repeats=1)
            assert sorted(work.prepared) == ["A", "fast", "slow"]
