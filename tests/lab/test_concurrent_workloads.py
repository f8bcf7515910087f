"""pgbench and a program on several real volumes at once, and what is left after an interrupt."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from interrupts import Interrupted, interrupt_when
from loop_devices import loop_devices
from untroubled_target import UntroubledTarget

from cephfit.core.protocols import Client, NullProgress
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.measurement import CacheCondition
from cephfit.core.values.sample import CPU_BUSY, DEVICE_IO, Run, State
from cephfit.lab.daemons import processes
from cephfit.lab.devices.disks import mounts
from cephfit.lab.workloads.pgbench import PgBench, PgBenchSpec
from cephfit.lab.workloads.postgres import MemoryGroup
from cephfit.lab.workloads.program_workload import ProgramWorkload
from cephfit.results.store.sample_store import Store
from cephfit.sweep.concurrent_clients import Lockstep, run_together
from cephfit.sweep.trial import Trial, client_rates_of
from cephfit.sweep.verification import verify

NBYTES = 256 * MIB
N = 4
SPEC = PgBenchSpec(scale=1, clients=2, warmup_seconds=0, max_wal_nbytes=64 * MIB)
FIO_JOB = Path(__file__).parents[2] / "docs" / "examples" / "workloads" / "fio_job.py"


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Four disks."""
    with loop_devices(tmp_path_factory.mktemp("disks")) as make:
        yield [make(NBYTES) for _ in range(N)]


class Disks(UntroubledTarget):
    """Real disks of this machine, the same under each configuration."""

    name = "disks"

    def __init__(self, devices: Sequence[Path]) -> None:
        self._devices = devices

    def clients(self) -> Sequence[Client]:
        return [Client(f"c{i}", {}, NBYTES, device) for i, device in enumerate(self._devices)]


def is_clean(devices: Sequence[Path]) -> bool:
    """Nothing of a database is left: no process, no mount, no control group."""
    points = [mount for mount in mounts() if str(mount.point).startswith("/run/cephfit/")]
    groups = [MemoryGroup.of_device(device).exists() for device in devices]
    places = [processes.of_folder(Path("/run/cephfit") / device.name) for device in devices]
    return not points and not any(groups) and not any(places)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "results.sqlite", create=True)
    store.add_run(Run("r1", "s", "", "0" * 64, "disks", 7, 1))
    return store


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.postgres
def test_pgbench_runs_on_four_volumes_at_once(devices: list[Path], store: Store) -> None:
    step = Lockstep()
    trial = Trial(PgBench(SPEC, unmeasured=step), NBYTES, 1, 2.0, 7, CacheCondition.COLD, N, step)
    (sample,) = verify(
        Disks(devices), [Configuration("A")], trial, store=store, run_id="r1", progress=NullProgress()
    )
    assert sample.state is State.OK, sample.reason
    rates = client_rates_of(sample)
    assert rates is not None and rates.lowest > 0
    assert sample.value == pytest.approx(sum(one["value"] for one in sample.evidence["clients"].values()))
    assert sample.evidence["together"] > 0.8, "all are measured for nearly the same time"
    counted = sample.evidence[DEVICE_IO]
    assert counted["n_writes"] > sample.value, "each transaction of each second writes to the log"
    assert counted["written_nbytes"] >= 4096 * 0.9 * counted["n_writes"] and 1.5 < counted["seconds"] < 10
    assert 0 < sample.evidence[CPU_BUSY] <= 1
    assert is_clean(devices)


@pytest.mark.slow  # waits for the end of four servers
@pytest.mark.root
@pytest.mark.postgres
def test_an_interrupted_pgbench_leaves_none_of_four_servers(devices: list[Path]) -> None:
    step = Lockstep()
    work = PgBench(SPEC, unmeasured=step)
    clients = [Client(f"c{i}", {}, NBYTES, device) for i, device in enumerate(devices)]
    for client in clients:
        work.prepare(client)

    def all_measure() -> bool:
        return all(
            any(b"pgbench" in name for name in _programs(Path("/run/cephfit") / device.name)) for device in devices
        )

    with pytest.raises(Interrupted), interrupt_when(all_measure):
        run_together(work, clients, 120.0, seeds=[1, 2, 3, 4], lockstep=step)
    for client in clients:
        work.cleanup(client)
    assert is_clean(devices)
    assert not [t for t in threading.enumerate() if t.name.startswith("client c")]


def _programs(folder: Path) -> list[bytes]:
    found = []
    for pid in processes.of_folder(folder):
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes())
        except OSError:
            continue
    return found


@pytest.mark.root
@pytest.mark.fio
def test_a_program_runs_on_four_volumes_at_once(
    devices: list[Path], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job.fio"
    job.write_text(
        "[global]\nfilename=${CEPHFIT_DEVICE}\nioengine=libaio\nsize=16M\nthread=1\ntime_based=1\nruntime=1\n"
        "[a]\nrw=randread\nbs=4k\n"
    )
    monkeypatch.setenv("FIO_JOB", str(job))
    monkeypatch.setenv("VOLUME", "64M")
    step = Lockstep()
    trial = Trial(ProgramWorkload(FIO_JOB, unmeasured=step), NBYTES, 1, 1.0, 7, n_clients=N, lockstep=step)
    (sample,) = verify(
        Disks(devices), [Configuration("A")], trial, store=store, run_id="r1", progress=NullProgress()
    )
    assert sample.state is State.OK, sample.reason
    assert sorted(sample.evidence["clients"]) == ["c0", "c1", "c2", "c3"]
    assert all(one["value"] > 0 for one in sample.evidence["clients"].values())
