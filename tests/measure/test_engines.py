"""Every engine passes the one contract suite."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from engine_contract import (
    Harness,
    InterruptibleContract,
    PreparingEngineContract,
    ProgramContract,
    VolumesContract,
    a_run,
)
from target_contract import DEFAULT

from cephfit.core.protocols import Client
from cephfit.core.units import MIB
from cephfit.core.values.cells import SIZE_BINS, FileCell, FileOperation, FileSet
from cephfit.core.values.measurement import Measurement
from cephfit.measure.engine import MovedBytes
from cephfit.measure.fio.fio_local import FioEngine
from cephfit.measure.fio.fio_remote import RemoteFioEngine
from cephfit.measure.fio.fio_servers import ServerClocks, why_unreachable
from cephfit.measure.micro.file_places import FOLDER, FilePlace
from cephfit.measure.micro.micro_engine import MicroEngine
from cephfit.targets.simulated import SimulatedTarget, Simulation

NBYTES = 4 * MIB
needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
needs_openstacksdk = pytest.mark.skipif(find_spec("openstack") is None, reason="needs the extra openstack")


def volume(folder: Path, number: int) -> Client:
    path = folder / f"volume{number}"
    path.write_bytes(random.Random(number).randbytes(NBYTES))
    return Client(f"c{number}", {"filename": str(path)}, NBYTES)


def absent(client: Client) -> Client:
    return replace(client, fio_options={"filename": "/dev/null/volume"}, device=None)


class TestSimulation(InterruptibleContract):
    @pytest.fixture
    def harness(self) -> Harness:
        target = SimulatedTarget(Simulation(pace=1.0))
        clients = [Client(f"c{n}", {}, NBYTES) for n in range(2)]
        return Harness(target.engine(), clients, None, by_program=False)


@needs_fio
@pytest.mark.fio
class TestFioOnFiles(ProgramContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        clients = [volume(tmp_path, n) for n in range(2)]
        return Harness(FioEngine(), clients, absent(clients[1]))

    def test_what_fio_notes_besides_is_no_part_of_its_json(
        self, harness: Harness, measurement: Measurement
    ) -> None:
        """The report reads it. fio notes that a synchronous ioengine has one I/O in flight, whatever is asked."""
        run = a_run(replace(measurement, ioengine="psync"), harness.clients, "4K-randread")
        outcome = harness.engine.run(run)
        assert outcome.clients["c0"].metrics is not None
        assert "fio version" in json.loads(str(outcome.fio_json))


@needs_fio
@pytest.mark.fio
@pytest.mark.root
class TestFioOnDevices(ProgramContract):
    @pytest.fixture
    def harness(self, loop_device: Callable[[int], Path]) -> Harness:
        devices = [loop_device(16 * MIB) for _ in range(2)]
        clients = [Client(f"c{n}", {"filename": str(d)}, 16 * MIB, d) for n, d in enumerate(devices)]
        return Harness(FioEngine(), clients, absent(clients[1]), {"direct": True}, cells=("1M-randwrite",))


class TestFileOperations(PreparingEngineContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        clients = [Client(f"c{n}", {"filename": str(tmp_path / f"c{n}")}, NBYTES) for n in range(2)]
        engine = MicroEngine(place_of=lambda client: FilePlace(FOLDER, client.fio_options["filename"]))
        cells = (FileCell.of(FileOperation.KEEP_WRITE, SIZE_BINS[0]), FileCell.of(FileOperation.RENAME))
        measurement = {"files": FileSet(20, 8192, 7, "ext4")}
        return Harness(engine, clients, absent(clients[1]), measurement, cells, least_seconds=0)


class Servers:
    """Two fio servers of this machine, each with a volume of its own."""

    def __init__(self, folder: Path) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self.clients = [self._serving(volume(folder, number)) for number in range(2)]

    def _serving(self, client: Client) -> Client:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1,{free.getsockname()[1]}"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = ["fio", f"--server={address}"]
        self.processes.append(subprocess.Popen(command, start_new_session=True, cwd="/", **quiet))  # type: ignore[call-overload]
        client, deadline = replace(client, address=address), time.monotonic() + 20
        while why_unreachable(client, timeout_seconds=1):
            assert time.monotonic() < deadline, "the server never listened"
            time.sleep(0.05)
        return client

    def close(self) -> None:
        for process in self.processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path)
    yield made
    made.close()


class NobodyMoves:
    """Implements ``CountsIo`` by one who sees nothing."""

    count_source = "nobody"
    count_seconds = 0.1

    def moved(self, client: Client) -> MovedBytes:
        return MovedBytes(0, 0)


@needs_fio
@pytest.mark.fio
class TestFioServers(ProgramContract):
    @pytest.fixture
    def engine(self) -> RemoteFioEngine:
        return RemoteFioEngine(most_skew=9)

    @pytest.fixture
    def harness(self, servers: Servers, engine: RemoteFioEngine) -> Harness:
        clients = servers.clients
        return Harness(engine, clients, absent(clients[1]))


@needs_fio
@pytest.mark.fio
@pytest.mark.slow
class TestFioServersThatAreNotThere(TestFioServers):
    """As before, with clocks compared; and what is not there is the server, not the volume behind it."""

    @pytest.fixture
    def engine(self) -> RemoteFioEngine:
        return RemoteFioEngine(NobodyMoves(), clocks=ServerClocks(), most_skew=9)

    @pytest.fixture
    def harness(self, servers: Servers, engine: RemoteFioEngine) -> Harness:
        broken = replace(servers.clients[1], address="127.0.0.1,9")
        return Harness(engine, servers.clients, broken)


class HereForThere:
    """Guest jobs that are done on this machine: the same script, run by the same shell, with the real fio."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def send(
        self, clients: Sequence[Client], jobs: Mapping[str, str], *, seconds: float, together: bool = True
    ) -> Any:
        from cephfit.cloud.guests.guest_jobs import SIGNAL, Answers, JobResult
        from cephfit.measure.fio.fio_servers import Offset

        start = time.time()
        running = {}
        for name, script in jobs.items():
            own = script.replace("/tmp/cephfit.fio", str(self._folder / f"{name}.fio"))
            pipe = subprocess.PIPE
            running[name] = subprocess.Popen(["/bin/sh", "-c", own], stdout=pipe, stderr=pipe, text=True, cwd="/")
        said = {}
        for name, process in running.items():
            output, errors = process.communicate(timeout=60)
            said[name] = JobResult(output, errors, start, start + 0.1, process.returncode, SIGNAL)
        return Answers(said, start, dict.fromkeys(said, Offset(-0.01, 0.01)))


@needs_fio
@needs_openstacksdk
@pytest.mark.fio
class TestGuestJobs(VolumesContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        from cephfit.cloud.guests.guest_transport import GuestJobEngine

        clients = [volume(tmp_path, n) for n in range(2)]
        engine = GuestJobEngine(HereForThere(tmp_path))  # type: ignore[arg-type]
        return Harness(engine, clients, absent(clients[1]), cells=("4K-randread",), by_program=False)


@needs_fio
@needs_openstacksdk
@pytest.mark.fio
class TestGuestsInTheirPlaces(ProgramContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        from cephfit.cloud.guests.guests import Place, PlacedEngine

        class Places:
            def places(self) -> Mapping[str, Place]:
                return {name: Place(f"server of {name}", "compute1", "f00") for name in ("c0", "c1")}

            def n_guests(self) -> int:
                return 2

        clients = [volume(tmp_path, n) for n in range(2)]
        return Harness(PlacedEngine(FioEngine(), Places()), clients, absent(clients[1]), cells=("4K-randread",))


@pytest.fixture(scope="module")
def images(lab_cluster: Any) -> Iterator[Sequence[Client]]:
    """Two clients that are images of the lab, and filled."""
    from cephfit.lab.lab_target import LabTarget

    target = LabTarget(lab_cluster, librbd=True)
    try:
        target.apply(DEFAULT, n_clients=2, volume_nbytes=16 * MIB)
        yield target.clients()
        target.reset()
    finally:
        target.close()


def in_no_pool(client: Client) -> Client:
    return replace(client, fio_options={**client.fio_options, "pool": "nowhere"})


@needs_fio
@pytest.mark.fio
@pytest.mark.root
@pytest.mark.ceph
class TestFioOnImages(ProgramContract):
    @pytest.fixture
    def harness(self, images: Sequence[Client]) -> Harness:
        return Harness(FioEngine(), images, in_no_pool(images[1]), {"ioengine": "rbd"}, cells=("4K-randread",))


@pytest.mark.root
@pytest.mark.ceph
@pytest.mark.slow
class TestRadosBench(PreparingEngineContract):
    @pytest.fixture
    def harness(self, images: Sequence[Client]) -> Harness:
        from cephfit.measure.rados_bench import RadosBenchEngine

        # It writes as many objects as the volume would hold before they are read.
        clients = [replace(client, nbytes=2 * MIB) for client in images]
        cells = ("32K-randread", "32K-write")
        return Harness(RadosBenchEngine(), clients, in_no_pool(clients[1]), {"ioengine": "rbd"}, cells)


@pytest.mark.root
@pytest.mark.ceph
@pytest.mark.slow
class TestRbdBench(PreparingEngineContract):
    @pytest.fixture
    def harness(self, images: Sequence[Client]) -> Harness:
        from cephfit.measure.rbd_bench import RbdBenchEngine

        engine, broken = RbdBenchEngine(), in_no_pool(images[1])
        # It has no run time: it is asked for as many I/Os as the trial did in that time.
        cells = ("4K-randread", "4K-randwrite")
        return Harness(engine, images, broken, {"ioengine": "rbd"}, cells, least_seconds=0.1, attempts=3)
