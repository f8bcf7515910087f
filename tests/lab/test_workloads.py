"""All workloads pass the contract suite."""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from interrupts import Interrupted, interrupt_when, started_by_us
from loop_devices import loop_devices
from workload_contract import Harness, WorkloadContract

from cephfit.core.errors import InputError
from cephfit.core.protocols import Client
from cephfit.core.units import MIB
from cephfit.lab.daemons import processes
from cephfit.lab.devices.disks import mounts
from cephfit.lab.workloads.pgbench import PgBench, PgBenchSpec
from cephfit.lab.workloads.postgres import MemoryGroup
from cephfit.lab.workloads.program_workload import ProgramWorkload

SPEC = PgBenchSpec(scale=1, clients=2, warmup_seconds=0, max_wal_nbytes=64 * MIB)
NBYTES = 256 * MIB


def seeds_of(evidence: Mapping[str, Any]) -> list[str]:
    """The seed in the output of pgbench."""
    found = re.findall(r"setting random seed to (\d+)", evidence["output"])
    assert found
    return found


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Two empty disks; the second is for prepared data."""
    with loop_devices(tmp_path_factory.mktemp("disks")) as make:
        yield make(NBYTES), make(NBYTES)


@pytest.fixture(scope="module")
def loaded(devices: tuple[Path, Path]) -> Path:
    """A disk with a database, for tests that only run on it."""
    PgBench(SPEC).prepare(on(devices[1]))
    return devices[1]


def on(device: Path) -> Client:
    return Client("c0", {"filename": str(device)}, NBYTES, device)


def left_of(device: Path) -> object:
    """Remains of a run on this machine."""
    place = Path(f"/run/cephfit/pgbench-{device.name}")
    return (
        [m.point for m in mounts() if place in m.point.parents],
        processes.of_folder(place),
        place.exists(),
        MemoryGroup.of_device(device).exists(),
    )


def on_a_disk(device: Path) -> Harness:
    return Harness(
        open=lambda: PgBench(SPEC),
        otherwise=PgBench(replace(SPEC, clients=3)),
        client=on(device),
        useless=Client("c0", {"pool": "vms", "rbdname": "i"}, NBYTES),
        least_nbytes=SPEC.database_nbytes,
        choices=seeds_of,
        state=lambda: left_of(device),
        take_away=lambda patch: patch.setattr(os, "geteuid", lambda: 1000),
    )


@pytest.mark.root
@pytest.mark.postgres
class TestPgBench(WorkloadContract):
    @pytest.fixture
    def harness(self, devices: tuple[Path, Path]) -> Harness:
        return on_a_disk(devices[0])

    @pytest.fixture
    def prepared(self, loaded: Path) -> Harness:
        return on_a_disk(loaded)

    def test_an_interrupt_leaves_nothing_but_the_data_for_another_run(
        self, prepared: Harness, loaded: Path
    ) -> None:
        before, own = left_of(loaded), started_by_us()

        def is_running() -> bool:
            return any(b"--time" in _words(pid) for pid in started_by_us() - own)

        with interrupt_when(is_running) as interrupted_at:
            with pytest.raises(Interrupted):
                prepared.open().run(prepared.client, 60, seed=1)
            assert time.monotonic() - interrupted_at[0] < 20
        assert left_of(loaded) == before
        value, _ = prepared.open().run(prepared.client, 1, seed=1)
        assert value > 0

    def test_a_number_of_transactions_ends_a_run(self, prepared: Harness) -> None:
        bench = PgBench(replace(SPEC, warmup_seconds=0.5))
        value, evidence = bench.run_operations(prepared.client, 42, 1.0, seed=1)
        assert evidence["operations"] == 42, "of two clients, each the same number"
        assert "number of transactions actually processed: 42/42" in evidence["output"]
        assert "number of transactions actually processed: 20/20" in evidence["warmup_output"]
        seconds = (evidence["finished_ns"] - evidence["started_ns"]) / 1e9
        assert value >= 42 / seconds


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


class Guests:
    """Guests that answer as the script ``heat/pgbench.sh`` does: prepared or not, with PostgreSQL or without."""

    def __init__(self) -> None:
        self.holds_database = False
        self.has_postgres = True
        self.n_guest_jobs = 0

    def run_guest_jobs(self, clients: Sequence[Client], scripts: Mapping[str, str], *, seconds: float) -> Any:
        from cephfit.cloud.guests.guest_jobs import SIGNAL, Answers, JobResult
        from cephfit.measure.fio.fio_servers import Offset

        self.n_guest_jobs += 1
        (client,) = clients
        wanted = dict(re.findall(r"^export CEPHFIT_(\w+)='?([^'\n]*)'?$", scripts[client.name], re.M))
        output, errors, code = self._done(wanted)
        said = JobResult(output, errors, 1795287020.5, 1795287071.0, code, SIGNAL)
        return Answers({client.name: said}, 1795287020.0, {client.name: Offset(0.1, 0.3)})

    def _done(self, wanted: Mapping[str, str]) -> tuple[str, str, int]:
        if not self.has_postgres:
            return "", "this image has no PostgreSQL: cephfit image build --with postgresql", 3
        if wanted["STEPS"] == "prepare":
            self.holds_database = True
            return "CEPHFIT-PREPARED 1795287050.25\n", "", 0
        if not self.holds_database:
            return "", f"mount: mounting {wanted['DEVICE']} on /run/cephfit/disk failed: Invalid argument", 255
        # Figures of a guest of the lab's OpenStack, scale 4, shortened.
        seed, seconds = int(wanted["SEED"]), int(wanted["SECONDS"])
        lines = (
            "CEPHFIT-STARTED 1795287058.158834",
            f"pgbench: setting random seed to {seed + 1}",
            f"duration: {seconds} s",
            "tps = 14.328820 (without initial connection time)",
            f"CEPHFIT-FINISHED {1795287058.158834 + seconds + 1.7}",
            "CEPHFIT-DATABASE-NBYTES 70688103",
            "CEPHFIT-SERVER 15.20 (Debian 15.20-0+deb12u1)",
        )
        return "\n".join([*lines, ""]), "", 0


@pytest.mark.skipif(find_spec("openstack") is None, reason="needs the extra openstack")
class TestPgBenchInGuests(WorkloadContract):
    @pytest.fixture
    def guests(self) -> Guests:
        return Guests()

    @pytest.fixture
    def harness(self, guests: Guests) -> Harness:
        from cephfit.lab.workloads.pgbench import GuestPgBench, spec_of

        spec = spec_of(4)
        return Harness(
            open=lambda: GuestPgBench(guests, spec),
            otherwise=GuestPgBench(guests, spec_of(5)),
            client=Client("c0", {"filename": "/dev/cephfit-volume"}, spec.database_nbytes),
            useless=Client("c0", {"pool": "vms", "rbdname": "i"}, spec.database_nbytes),
            least_nbytes=spec.database_nbytes,
            choices=seeds_of,
            state=lambda: None,
            take_away=lambda patch: patch.setattr(guests, "has_postgres", False),
        )

    @pytest.fixture
    def prepared(self, harness: Harness) -> Harness:
        harness.open().prepare(harness.client)
        return harness

    def test_a_guest_is_not_booted_for_what_cannot_be(self, harness: Harness, guests: Guests) -> None:
        with pytest.raises(InputError, match="needs"):
            harness.open().prepare(replace(harness.client, nbytes=1))
        assert guests.n_guest_jobs == 0


PROGRAM = """\
#!/bin/sh
case "$1" in
describe) echo '{"name": "copy", "metric": "copies/s", "volume": "1M", "copies": COPIES}';;
prepare) echo its data > "$CEPHFIT_DEVICE";;
run)
    test -e lacking && { echo "it lacks its licence" >&2; exit 2; }
    test "$(head -n 1 "$CEPHFIT_DEVICE")" = "its data" || { echo "no data on $CEPHFIT_DEVICE" >&2; exit 1; }
    touch running; sleep "$CEPHFIT_SECONDS"; echo "chosen: $CEPHFIT_SEED"; echo 12.5;;
cleanup) rm -f running;;
esac
"""


class TestProgram(WorkloadContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        paths = []
        for n_copies in (1, 2):
            (folder := tmp_path / str(n_copies)).mkdir()
            path = folder / "copy.sh"
            path.write_text(PROGRAM.replace("COPIES", str(n_copies)))
            path.chmod(0o755)
            paths.append(path)
        device = tmp_path / "device"
        device.write_text("something else\n")
        return Harness(
            open=lambda: ProgramWorkload(paths[0]),
            otherwise=ProgramWorkload(paths[1]),
            client=Client("c0", {"filename": str(device)}, 2 * MIB, device),
            useless=Client("c0", {"pool": "vms", "rbdname": "i"}, 2 * MIB),
            least_nbytes=MIB,
            choices=lambda evidence: re.findall(r"chosen: (\d+)", evidence["output"]),
            state=lambda: ((paths[0].parent / "running").exists(), device.exists()),
            take_away=lambda patch: (paths[0].parent / "lacking").touch(),
        )

    @pytest.fixture
    def prepared(self, harness: Harness) -> Harness:
        harness.open().prepare(harness.client)
        return harness
