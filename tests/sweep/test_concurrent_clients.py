"""A workload on several clients at once: in step, summed, failed together, and nothing left after an end."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from interrupts import Interrupted, interrupt_when
from untroubled_target import UntroubledTarget

from cephfit.core.errors import ClusterError, InputError, LackingError
from cephfit.core.protocols import Applied, Client, NullProgress, Workload
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.sample import Run, State
from cephfit.results.store.sample_store import Store
from cephfit.sweep.concurrent_clients import ClientRates, Lockstep, run_together
from cephfit.sweep.trial import CLIENTS, CONDITIONS, Trial, client_rates_of, n_clients_of, together_share
from cephfit.sweep.verification import run_once, verify

ROOT = Path(__file__).resolve().parents[2]


class Volumes(UntroubledTarget):
    """A target with a volume for each of up to ``most`` clients."""

    name = "volumes"

    def __init__(self, most: int = 8) -> None:
        self.most = most
        self.applied = ""
        self.notes: dict[tuple[str, str, str], str] = {}
        self._clients: tuple[Client, ...] = ()

    def facts(self) -> Mapping[str, Any]:
        return {"fsid": "one"}

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        self.applied = configuration.name
        self._clients = tuple(Client(f"c{i}", {}, volume_nbytes) for i in range(min(n_clients, self.most)))
        return Applied(configuration.name, True, (), {})

    def clients(self) -> Sequence[Client]:
        return self._clients

    def note_on(self, client: Client, key: str) -> str | None:
        return self.notes.get((self.applied, client.name, key))

    def set_note(self, client: Client, key: str, text: str | None) -> None:
        self.notes[self.applied, client.name, key] = text or ""


class Steps(Workload):
    """Has steps as pgbench has them: not measured, measured, not measured. Records what overlaps."""

    name, metric = "steps", "tps"

    def __init__(self, unmeasured: Callable[[], Any], *, fails: Mapping[str, Exception] | None = None) -> None:
        self.unmeasured = unmeasured
        self.fails = dict(fails or {})
        self.prepared: list[str] = []
        self.ran: list[tuple[str, int]] = []
        self.measuring = 0
        self.most_at_once = 0
        self.cleaned: list[str] = []
        self._lock = threading.Lock()

    def description(self) -> Mapping[str, Any]:
        return {"version": 1}

    def prepare(self, client: Client) -> None:
        self.prepared.append(client.name)

    def run(self, client: Client, seconds: float, *, seed: int) -> tuple[float, Mapping[str, Any]]:
        number = int(client.name[1:])
        with self.unmeasured():
            time.sleep(0.05 * number)  # they need different times to start
            if error := self.fails.get(client.name):
                raise error
        started_ns = time.time_ns()
        with self._lock:
            self.measuring += 1
            self.most_at_once = max(self.most_at_once, self.measuring)
        time.sleep(seconds + 0.05 * number)
        with self._lock:
            self.measuring -= 1
        finished_ns = time.time_ns()
        with self.unmeasured():
            self.ran.append((client.name, seed))
        return 10.0 + number, {"started_ns": started_ns, "finished_ns": finished_ns}

    def cleanup(self, client: Client) -> None:
        self.cleaned.append(client.name)


class FullSpeed:
    """Limits that are lifted within a block, by one at a time; records whether anything is measured meanwhile."""

    def __init__(self) -> None:
        self.work: Steps | None = None
        self.n_lifted = 0
        self.is_lifted = False
        self.measured_meanwhile = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        assert not self.is_lifted, "lifted by two at once"
        self.is_lifted = True
        self.n_lifted += 1
        yield
        assert self.work is not None
        self.measured_meanwhile |= self.work.measuring > 0
        self.is_lifted = False


class SlowLimits:
    """Limits that are lifted and set again in many steps, as by programs."""

    def __init__(self, *, slow: str) -> None:
        self.slow = slow
        self.now = ""
        self.is_lifted = False

    def _take_steps(self, what: str) -> None:
        self.now = what
        until = time.monotonic() + (2.0 if what == self.slow else 0.0)
        while time.monotonic() < until:
            time.sleep(0.01)
        self.now = ""

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.is_lifted = True
        self._take_steps("lifting")
        try:
            yield
        finally:
            self._take_steps("limiting")
            self.is_lifted = False


def clients(n: int) -> list[Client]:
    return [Client(f"c{i}", {}, 1 << 20) for i in range(n)]


def test_all_are_measured_at_once_while_no_limit_is_lifted() -> None:
    limits = FullSpeed()
    step = Lockstep(limits)
    limits.work = work = Steps(step)
    results = run_together(work, clients(4), 0.3, seeds=[1, 2, 3, 4], lockstep=step)
    assert {name: value for name, (value, _) in results.items()} == {"c0": 10, "c1": 11, "c2": 12, "c3": 13}
    assert work.most_at_once == 4
    assert sorted(work.ran) == [("c0", 1), ("c1", 2), ("c2", 3), ("c3", 4)]
    assert (limits.n_lifted, limits.measured_meanwhile, limits.is_lifted) == (2, False, False)
    # The longest measures 0.3 + 0.15 s; all are measured in about 0.3 s of it.
    share = together_share([output for _, output in results.values()])
    assert share is not None and 0.3 < share < 0.9  # 0.67 on an idle machine


def test_one_client_needs_no_others() -> None:
    limits = FullSpeed()
    limits.work = work = Steps(Lockstep(limits))
    assert work.run(clients(1)[0], 0.01, seed=5)[0] == 10
    assert limits.n_lifted == 2


@pytest.mark.parametrize("who", ["c0", "c2"])
def test_a_client_that_fails_fails_all_and_is_named(who: str) -> None:
    limits = FullSpeed()
    step = Lockstep(limits)
    limits.work = work = Steps(step, fails={who: ClusterError("the server did not start", where="/dev/x")})
    begun = time.monotonic()
    with pytest.raises(ClusterError, match="the server did not start") as caught:
        run_together(work, clients(3), 20.0, seeds=[1, 2, 3], lockstep=step)
    assert caught.value.where == f"client {who}, /dev/x"
    assert time.monotonic() - begun < 5, "the others wait for it before they are measured"
    assert not limits.is_lifted


def test_a_bug_in_a_client_is_raised_as_it_is() -> None:
    step = Lockstep()
    with pytest.raises(ZeroDivisionError):
        run_together(Steps(step, fails={"c1": ZeroDivisionError()}), clients(2), 1.0, seeds=[1, 2], lockstep=step)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "results.sqlite", create=True)
    store.add_run(Run("r1", "s", "", "0" * 64, "volumes", 7, 1))
    return store


def trial_of(n: int, *, fails: Mapping[str, Exception] | None = None) -> tuple[Steps, Trial]:
    step = Lockstep()
    work = Steps(step, fails=fails)
    return work, Trial(work, 1 << 20, 2, 0.05, 7, n_clients=n, lockstep=step)


def test_a_sample_is_the_sum_and_keeps_what_each_client_gave(store: Store) -> None:
    target, (work, trial) = Volumes(), trial_of(3)
    both = [Configuration("A"), Configuration("fast")]
    samples = verify(target, both, trial, store=store, run_id="r1", progress=NullProgress())
    assert [(s.value, n_clients_of(s)) for s in samples] == [(33.0, 3)] * 4
    assert {w for w, _ in store.workload_samples("r1")} == {"steps x 3"}
    assert {name: one["value"] for name, one in samples[0].evidence[CLIENTS].items()} == {
        "c0": 10.0, "c1": 11.0, "c2": 12.0,
    }  # fmt: skip
    assert samples[0].evidence[CONDITIONS]["clients"] == 3
    rates = client_rates_of(samples[0])
    # Jain: (10 + 11 + 12)² / (3 (100 + 121 + 144)) = 1089 / 1095.
    assert rates is not None
    assert (rates.lowest, rates.median, rates.highest) == (10, 11, 12)
    assert rates.fairness == pytest.approx(1089 / 1095)
    # Each volume is prepared once, and settles in a run of all.
    assert work.prepared == ["c0", "c1", "c2"] * 2
    seeds = {client: [seed for name, seed in work.ran if name == client] for client in ("c0", "c1")}
    assert len(seeds["c0"]) == 6
    assert not set(seeds["c0"]) & set(seeds["c1"]), "clients choose differently"


def test_verifications_with_other_numbers_of_clients_stay_apart(store: Store) -> None:
    target = Volumes()
    for n in (1, 3):
        samples = verify(
            target, [Configuration("A")], trial_of(n)[1], store=store, run_id="r1", progress=NullProgress()
        )
        assert [n_clients_of(s) for s in samples] == [n, n]
    assert client_rates_of(store.workload_samples("r1")[0][1]) is None, "one client has no spread"


def test_a_failed_client_is_a_failed_attempt_and_the_next_start_continues(store: Store) -> None:
    target = Volumes()
    work, trial = trial_of(2, fails={"c1": ClusterError("the disk is gone")})
    samples = verify(target, [Configuration("A")], trial, store=store, run_id="r1", progress=NullProgress())
    assert {s.state for s in samples} == {State.FAILED}
    assert samples[0].reason == "client c1: the disk is gone"
    assert work.cleaned.count("c0") and work.cleaned.count("c1")
    _, trial = trial_of(2)
    samples = verify(target, [Configuration("A")], trial, store=store, run_id="r1", progress=NullProgress())
    assert sum(s.state is State.OK for s in samples) == 2


def test_a_lasting_fault_of_one_client_ends_the_verification(store: Store) -> None:
    _, trial = trial_of(2, fails={"c1": LackingError("PostgreSQL is not installed")})
    with pytest.raises(LackingError, match="PostgreSQL is not installed"):
        verify(Volumes(), [Configuration("A")], trial, store=store, run_id="r1", progress=NullProgress())


def test_more_clients_than_the_target_gives_are_refused() -> None:
    _, trial = trial_of(4)
    with pytest.raises(InputError, match="the target gives 3 clients, not 4"):
        run_once(Volumes(most=3), Configuration("A"), trial, progress=NullProgress())


def test_one_client_that_has_everything_is_seen_in_the_fairness() -> None:
    assert ClientRates.of([8.0, 0.0, 0.0, 0.0]).fairness == pytest.approx(0.25)
    assert ClientRates.of([2.0, 4.0]).median == 3.0
    assert ClientRates.of([5.0, 5.0, 5.0]).fairness == pytest.approx(1.0)


@pytest.mark.parametrize("during", ["lifting", "limiting"])
def test_an_interrupt_leaves_no_limit_lifted(during: str) -> None:
    limits = SlowLimits(slow=during)
    step = Lockstep(limits)
    with pytest.raises(Interrupted), interrupt_when(lambda: limits.now == during) as moments:
        run_together(Steps(step), clients(3), 20.0, seeds=[1, 2, 3], lockstep=step)
    assert moments, "it was interrupted before its end"
    assert time.monotonic() - moments[0] < 10, "the others are ended"
    assert not limits.is_lifted
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("client ")]


CHILD = """
import subprocess, sys, time
from pathlib import Path
from cephfit.cli.output import sigterm_as_interrupt
from cephfit.core.child_process import run_to_end, start
from cephfit.core.cleanup import cleaned_up_by
from cephfit.core.protocols import Client
from cephfit.sweep.concurrent_clients import Lockstep, run_together

folder = Path(sys.argv[1])

class Work:
    def run(self, client, seconds, *, seed):
        with cleaned_up_by(lambda: (folder / f"{client.name}.cleaned").touch()):
            argv = ["/bin/sh", "-c", f"echo $$ > {folder}/{client.name}.pid; exec sleep 300"]
            if client.name == "c0":  # waits without a limit in the kernel, as for pgbench
                start(argv).communicate()
            else:
                run_to_end(argv, seconds=300, where="program")
        return 1.0, {}

with sigterm_as_interrupt():
    run_together(Work(), [Client(f"c{i}", {}, 1) for i in range(3)], 1.0, seeds=[1, 2, 3], lockstep=Lockstep())
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_runs_after_the_end_of_the_program(how: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        until = time.monotonic() + 30
        files = [tmp_path / f"c{i}.pid" for i in range(3)]
        while not all(f.exists() and f.read_text().strip() for f in files) and time.monotonic() < until:
            time.sleep(0.05)
        pids = [int(file.read_text()) for file in files]
        assert all(map(is_running, pids))
        os.kill(process.pid, how)
        process.communicate(timeout=30)
    until = time.monotonic() + 5
    while any(map(is_running, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_running, pids))
    assert process.returncode != 0
    cleaned = {file.name for file in tmp_path.glob("*.cleaned")}
    assert cleaned == (set() if how is signal.SIGKILL else {"c0.cleaned", "c1.cleaned", "c2.cleaned"})
