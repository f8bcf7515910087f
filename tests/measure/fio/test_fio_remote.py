"""fio's client/server mode with real servers on this machine: who is measured, and what goes wrong and is said."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cephfit.core.errors import ClusterError, HostError, InputError
from cephfit.core.protocols import Applied, Client, NullProgress
from cephfit.core.units import MIB
from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.sample import Metrics, State
from cephfit.measure.engine import CellRun, Engine, MovedBytes
from cephfit.measure.fio.fio_files import UnusableOutputError, read_output
from cephfit.measure.fio.fio_local import FioEngine
from cephfit.measure.fio.fio_remote import AGGREGATE, RemoteFioEngine, drain_seconds, jobs_of, why_not_together
from cephfit.measure.fio.fio_servers import why_unreachable
from cephfit.measure.surveillance import Circumstances, judge
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.runner import run_sweep
from cephfit.sweep.sweep_plan import Sweep
from cephfit.targets.simulated import SimulatedTarget

pytestmark = [pytest.mark.fio, pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")]
NBYTES = 4 * MIB
ENGINE = RemoteFioEngine(most_skew=9)
"""On a machine that is busy with other tests two servers may begin far apart; another test covers that."""


@dataclass
class Servers:
    """Real fio servers, each with a separate volume."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def client(self, *, by_socket: bool = False) -> Client:
        """One more server, and the client whose I/O it does."""
        number = len(self.processes)
        volume = self.folder / f"volume{number}"
        volume.write_bytes(random.Random(number).randbytes(NBYTES))
        address = f"sock:{self.folder}/s{number}" if by_socket else f"127.0.0.1,{free_port()}"
        command = ["fio", f"--server={address}"]
        self.processes.append(
            subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/"
            )
        )
        client = Client(f"c{number}", {"filename": str(volume)}, NBYTES, address=address)
        deadline = time.monotonic() + 20
        while why_unreachable(client, timeout_seconds=1):
            assert time.monotonic() < deadline, "the server never listened"
            time.sleep(0.05)
        return client

    def jobs(self, number: int) -> list[int]:
        """The processes of one server that do a connection's work, the deepest last."""
        found, level = [], [self.processes[number].pid]
        while level:
            level = [int(pid) for parent in level for pid in children(parent)]
            found += level
        return found

    def session(self, number: int) -> list[int]:
        """One server and all that it started, also what has lost its parent since."""
        leader = self.processes[number].pid
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if session_of(pid) == leader]

    def states(self, number: int) -> list[str]:
        """What the processes of ``session`` do, for messages."""
        found = []
        for pid in self.session(number):
            with suppress(OSError):
                state = [Path(f"/proc/{pid}/{name}").read_text().strip() for name in ("stat", "wchan")]
                found.append(" ".join(state))
        return found


def session_of(pid: int) -> int | None:
    """None for one that is over."""
    try:
        state, _, _, session, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(session)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def children(parent: int) -> list[str]:
    try:
        return Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return []


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path)
    yield made
    for process in made.processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


def a_run(sweep: Sweep, clients: Sequence[Client], cell: str = "4K-randread", **changes: object) -> CellRun:
    values: dict[str, object] = {"run_seconds": 0.8, "direct": False, **changes}
    measurement = replace(sweep.measurement, **values)  # type: ignore[arg-type]
    seeds = {client.name: 11 + i for i, client in enumerate(clients)}
    return CellRun("A", Cell.parse(cell), 0, 0, measurement, clients, seeds)


def while_running(servers: Servers, number: int, deed: Callable[[list[int]], None]) -> threading.Thread:
    """Does something to the processes of a server half a second after its job has begun.

    On a busy machine it is later: give it runs of some seconds.
    """

    def watch() -> None:
        deadline = time.monotonic() + 30
        while len(servers.jobs(number)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.5)
        deed(servers.jobs(number))

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def kill_all(pids: list[int]) -> None:
    for pid in reversed(pids):
        os.kill(pid, signal.SIGKILL)


def test_each_client_has_its_own_servers_figures_and_they_ran_together(
    small_sweep: Sweep, servers: Servers
) -> None:
    clients = [servers.client(), servers.client(), servers.client(by_socket=True)]
    outcome = ENGINE.run(a_run(small_sweep, clients, run_seconds=1.5))
    rates = {}
    for client in clients:
        given = outcome.clients[client.name]
        assert given.metrics is not None, given.failure
        assert given.metrics.runtime_ns >= 1.4e9
        assert given.evidence["address"] == client.address
        assert given.evidence["together"]["start_skew_seconds"] >= 0
        assert given.evidence["together"]["end_skew_seconds"] >= 0
        assert "another host" in given.uncounted
        rates[client.name] = given.metrics.iops
    document = json.loads(str(outcome.fio_json))  # what readers of the store do: no lines of servers before it
    by_name = {job["jobname"]: job["read"] for job in document["client_stats"] if job["jobname"] != AGGREGATE}
    for name, iops in rates.items():
        assert iops == pytest.approx(by_name[name]["io_bytes"] / 4096 / (by_name[name]["runtime"] / 1000))


def test_fios_own_sum_of_the_clients_is_faulty_and_is_not_used(small_sweep: Sweep, servers: Servers) -> None:
    clients = [servers.client(), servers.client()]
    document = read_output(str(ENGINE.run(a_run(small_sweep, clients)).fio_json), jobs="client_stats")
    own = [job for job in document["client_stats"] if job["jobname"] != AGGREGATE]
    sums = [job for job in document["client_stats"] if job["jobname"] == AGGREGATE]
    assert len(own) == 2
    if document["fio version"] == "fio-3.33":
        (total,) = sums
        # It names one client's address, has no percentiles, and a run time that no run took.
        assert total["port"] in [job["port"] for job in own]
        assert "percentile" not in total["read"]["clat_ns"]
        assert total["job_runtime"] == sum(job["job_runtime"] for job in own)
    # Whatever a version puts there, twice or wrong, what the clients gave stays the same.
    wrong = {**own[0], "jobname": AGGREGATE}
    doctored = {**document, "client_stats": [wrong, *own, wrong, wrong]}
    assert jobs_of(doctored, clients) == jobs_of(document, clients) == {job["jobname"]: job for job in own}


def test_jobs_twice_unasked_or_from_elsewhere_are_refused() -> None:
    clients = [Client("c0", {}, 1, address="127.0.0.1,4000"), Client("c1", {}, 1, address="sock:/run/x")]
    good = {"jobname": "c0", "hostname": "127.0.0.1"}
    for stats in (
        [good, good],
        [{**good, "jobname": "c7"}],
        [{**good, "hostname": "10.0.0.9"}],
        [{**good, "jobname": "c1"}],
        ["c0"],
    ):
        with pytest.raises(UnusableOutputError):
            jobs_of({"client_stats": stats}, clients)
    assert jobs_of({"client_stats": [{"jobname": "c1", "hostname": "/run/x"}]}, clients).keys() == {"c1"}


def test_a_server_that_is_not_there_fails_the_run_at_once(small_sweep: Sweep, servers: Servers) -> None:
    """fio itself would go on with the other client alone, and end with 0."""
    clients = [servers.client(), Client("c9", {"filename": "/x"}, NBYTES, address=f"127.0.0.1,{free_port()}")]
    started = time.monotonic()
    outcome = ENGINE.run(a_run(small_sweep, clients, run_seconds=30))
    assert time.monotonic() - started < 10
    assert "Connection refused" in outcome.clients["c9"].failure
    assert "not run, because client c9" in outcome.clients["c0"].failure
    with pytest.raises(ClusterError, match="c9 cannot be reached"):
        ENGINE.warm(a_run(small_sweep, clients))


@pytest.mark.parametrize("how", [pytest.param("connection", marks=pytest.mark.slow), "job"])
def test_a_client_that_dies_fails_and_the_others_are_not_trusted(
    small_sweep: Sweep, servers: Servers, how: str
) -> None:
    clients = [servers.client(), servers.client()]
    run = a_run(small_sweep, clients, run_seconds=6.0)
    deed = while_running(servers, 1, lambda pids: kill_all(pids if how == "connection" else pids[-1:]))
    outcome = ENGINE.run(run)
    deed.join()
    assert outcome.clients["c1"].metrics is None
    assert "returned no result" in outcome.clients["c1"].failure
    samples = judge(run, outcome, Circumstances(1, 2, (1, 2), (), 1))
    assert [s.state for s in samples] == [State.INVALID, State.FAILED]
    assert "client c1" in samples[0].reason


def test_a_server_that_hangs_ends_the_run_in_time_and_nothing_runs_on(
    small_sweep: Sweep, servers: Servers
) -> None:
    clients = [servers.client(), servers.client()]
    stopped: list[int] = []

    def stop(pids: list[int]) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)

    deed = while_running(servers, 1, stop)
    started = time.monotonic()
    outcome = RemoteFioEngine(grace_seconds=4).run(a_run(small_sweep, clients, run_seconds=5.0))
    deed.join()
    try:
        assert time.monotonic() - started < 20
        assert outcome.clients["c1"].metrics is None
        assert "did not end within" in outcome.clients["c1"].failure
        deadline = time.monotonic() + 10
        while servers.jobs(0) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not servers.jobs(0), "the other server ends its job when the connection is gone"
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


_LONG_JOB = """
import sys
from cephfit.core.protocols import Client
from cephfit.measure.fio.fio_servers import drive_servers
job = "[c0]\\nioengine=psync\\nrw=randread\\nbs=4k\\nrate_iops=20\\ntime_based\\nruntime=120\\nsize=4m\\nfilename="
client = Client("c0", {}, 4 << 20, address=sys.argv[1])
drive_servers([client], {"c0": job + sys.argv[2]}, timeout_seconds=float(sys.argv[3]))
"""


@pytest.mark.parametrize(
    ("end", "timeout_seconds"),
    [
        pytest.param(signal.SIGKILL, 200, id="killed"),
        pytest.param(signal.SIGINT, 200, id="interrupted"),
        pytest.param(None, 4, id="too late"),
    ],
)
def test_no_job_goes_on_in_a_client_when_its_sweep_is_over(
    end: signal.Signals | None, timeout_seconds: float, servers: Servers
) -> None:
    """A server whose connection is gone ends its job no sooner: it would disturb the next sweep."""
    client = servers.client()
    command = [sys.executable, "-c", _LONG_JOB, str(client.address), client.fio_options["filename"]]
    with subprocess.Popen([*command, str(timeout_seconds)], start_new_session=True) as driver:
        wait_until(lambda: len(servers.session(0)) == 3, lambda: servers.states(0))
        if end is not None:
            driver.send_signal(end)
    # The job takes 120 s by itself. On a busy machine a server that ends it may need a while.
    wait_until(lambda: len(servers.session(0)) == 1, lambda: servers.states(0), seconds=90)


def wait_until(true: Callable[[], bool], state: Callable[[], object] = object, *, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, state()
        time.sleep(0.05)


@pytest.mark.slow
def test_a_job_that_a_server_cannot_do_says_why(small_sweep: Sweep, servers: Servers) -> None:
    good, bad = servers.client(), servers.client()
    bad = replace(bad, fio_options={"filename": "/dev/null/volume"})
    outcome = ENGINE.run(a_run(small_sweep, [good, bad]))
    assert outcome.clients["c0"].metrics is not None
    assert "Not a directory" in outcome.clients["c1"].failure
    bad = replace(bad, fio_options={"ioengine": "no_such_engine", "filename": "/x"})
    outcome = ENGINE.run(a_run(small_sweep, [good, bad]))
    assert "no_such_engine" in outcome.clients["c1"].failure


def test_clients_that_did_not_run_together_are_doubted(small_sweep: Sweep) -> None:
    assert why_not_together({"start_skew_seconds": 0.05, "end_skew_seconds": 0.06}, 1.0) == ""
    assert why_not_together({"start_skew_seconds": None, "end_skew_seconds": None}, 1.0) == ""
    assert "the last began 0.30 s after" in why_not_together({"start_skew_seconds": 0.3}, 1.0)
    assert "the last ended 9.00 s after" in why_not_together({"end_skew_seconds": 9.0}, 60.0)


def test_who_waits_for_a_large_access_at_the_end_is_no_straggler() -> None:
    """Measured with 32M on slow disks: 6 s, after which the slowest of three clients waited 5.1 s more."""
    known = Metrics(iops=0.4, nbytes_per_s=1e7, n_ios=4, runtime_ns=6 * 10**9, latency_mean_ns=1e6)
    drain = drain_seconds([known, replace(known, runtime_ns=11_110_000_000), None], 6.0)
    assert drain == pytest.approx(5.11)
    assert why_not_together({"start_skew_seconds": 0.16, "end_skew_seconds": 3.5}, 6.0, drain=drain) == ""
    assert "the last began" in why_not_together(
        {"start_skew_seconds": 3.5, "end_skew_seconds": 3.5}, 6.0, drain=drain
    )
    assert "the last ended 5.90 s" in why_not_together({"end_skew_seconds": 5.9}, 6.0, drain=drain)


class Hypervisor:
    """Counts what a client moved by its server's volume file, as a hypervisor would: or wrongly."""

    count_source = "the hypervisor"
    count_seconds = 0.05

    def __init__(self, servers: Servers, factor: float = 1.0) -> None:
        self._servers, self._factor = servers, factor
        self._done: dict[int, int] = {}

    def moved(self, client: Client) -> MovedBytes:
        number = int(client.name[1:])
        if number == 1:
            raise ClusterError("this guest has no counters")
        for pid in self._servers.jobs(number):
            try:
                words = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
            except (OSError, ValueError):
                continue
            blocks = int(words["rchar"]) // 4096  # messages from the driver are shorter, and no I/O of a volume
            self._done[pid] = max(self._done.get(pid, 0), 4096 * blocks)
        # What a process moved is added to its parent's when it has ended.
        return MovedBytes(round(self._factor * max(self._done.values(), default=0)), 0)


def test_a_target_that_counts_is_asked_and_believed_more_than_fio(small_sweep: Sweep, servers: Servers) -> None:
    clients = [servers.client(), servers.client()]
    run = a_run(small_sweep, clients, ioengine="psync", iodepth=1, run_seconds=1.5)
    around = Circumstances(1, 2, (1, 2), (), 1)
    outcome = RemoteFioEngine(Hypervisor(servers), most_skew=9).run(run)
    assert outcome.clients["c0"].count is not None, outcome.clients["c0"].failure
    assert outcome.clients["c1"].count is None
    assert outcome.clients["c1"].uncounted == "this guest has no counters"
    assert outcome.clients["c0"].count.source == "the hypervisor"
    samples = judge(run, outcome, around)
    assert [s.state for s in samples] == [State.OK] * 2, [s.reason for s in samples]
    wrong = judge(run, RemoteFioEngine(Hypervisor(servers, 0.2), most_skew=9).run(run), around)
    assert wrong[0].state is State.INVALID
    assert "the hypervisor counted" in wrong[0].reason


class Guests(SimulatedTarget):
    """A target whose clients are elsewhere: what OpenStack's guests are, by servers on this machine."""

    def __init__(self, servers: Servers) -> None:
        super().__init__(name="guests")
        self._servers = servers
        self._there: list[Client] = []

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        while len(self._there) < n_clients:
            self._there.append(self._servers.client())
        return super().apply(configuration, n_clients=n_clients, volume_nbytes=volume_nbytes, fill=fill)

    def clients(self) -> Sequence[Client]:
        return self._there

    def engine(self) -> Engine:
        return ENGINE


def test_a_sweep_is_measured_on_clients_that_are_elsewhere(
    servers: Servers, store: Store, small_text: str
) -> None:
    text = small_text.replace("repeats: 2", "repeats: 1").replace("sizes: [4K, 1M]", "sizes: [4K]")
    text = text.replace("  iodepth: 4\n", "  direct: false\n  loads: {one: {clients: 1, patterns: [read]}}\n")
    a, b = text.index("configurations:"), text.index("measurement:")
    sweep = parse_sweep(text[:a] + text[b:], file="small.yaml")
    run = run_sweep(sweep, Guests(servers), store, NullProgress(), resume=None)
    samples = store.samples(run.run_id)
    assert [s.state for s in samples] == [State.OK] * 5, [s.reason for s in samples]
    assert {(s.key.load, s.key.client) for s in samples} == {("", "c0"), ("", "c1"), ("one", "c0")}
    assert run.facts["engine"]["mode"] == "client/server"
    # The fio of this machine would open the path here, whatever it is.
    with pytest.raises(HostError, match="on another host"):
        FioEngine().run(a_run(sweep, [servers.client()]))


@pytest.mark.slow
def test_warming_reads_every_volume_through(small_sweep: Sweep, servers: Servers) -> None:
    clients = [servers.client(), servers.client()]
    ENGINE.warm(a_run(small_sweep, clients))
    broken = replace(clients[1], fio_options={"filename": "/dev/null/volume"})
    with pytest.raises(ClusterError, match="could be read"):
        ENGINE.warm(a_run(small_sweep, [clients[0], broken]))


@pytest.mark.parametrize(
    "address", [None, "", "--help", "a b", "host;x", "host,0", "host,70000", "sock:relative", "/etc/hosts", "h\nx"]
)
def test_addresses_that_are_none_are_refused(small_sweep: Sweep, address: str | None) -> None:
    client = Client("c0", {"filename": "/x"}, NBYTES, address=address)
    with pytest.raises(InputError, match="address"):
        ENGINE.run(a_run(small_sweep, [client]))


def test_a_server_aligns_and_flushes_as_the_load_says(
    small_sweep: Sweep, servers: Servers, tmp_path: Path
) -> None:
    client = servers.client()
    log = tmp_path / "accesses"
    client = replace(client, fio_options={**client.fio_options, "write_iolog": str(log)})
    run = a_run(
        small_sweep, [client], "32K-randwrite", align_nbytes=4096, sync="every 2", ramp_seconds=0.0, iodepth=1
    )
    given = ENGINE.run(run).clients[client.name]
    assert given.metrics is not None, given.failure
    assert given.evidence["flushes"]["n"] == pytest.approx(given.metrics.n_ios / 2, rel=0.02, abs=3)
    lines = [line.split() for line in log.read_text().splitlines() if " write " in line]
    places = {int(words[-2]) % 32768 for words in lines}
    assert len(places) > 4
    assert all(place % 4096 == 0 for place in places)
