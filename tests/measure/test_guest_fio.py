"""The jobs of guests that share a volume, run by real fio servers on this machine."""

import math
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import Client
from cephfit.core.units import MIB
from cephfit.core.values.cells import Op
from cephfit.measure.fio.fio_servers import why_unreachable
from cephfit.measure.sharing_client import LockWay, SharedLoad
from cephfit.measure.sharing_runs import job_of, require_whole_per_cent, run_in_guests, times_of

NO_CLIENT = Client("c1", {"filename": "/dev/vdb"}, 64 * MIB)


def load(**more: Any) -> SharedLoad:
    values: dict[str, Any] = {
        **{"way": LockWay.NONE, "op": Op.WRITE, "n_clients": 2, "shared_pct": 25.0, "access_nbytes": 4096},
        **{"range_nbytes": 0, "volume_nbytes": 24 * MIB, "unit_nbytes": MIB, **more},
    }
    return SharedLoad(**values)


def options_of(job: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in job.splitlines() if "=" in line)


def test_a_job_has_one_access_in_flight_in_the_common_region_and_the_own_one() -> None:
    found = options_of(job_of(load(), 1, NO_CLIENT, ramp_seconds=0.5, run_seconds=2, seed=7))
    assert found["random_distribution"] == f"zoned_abs:25/{8 * MIB}:0/{8 * MIB}:75/{8 * MIB}"
    assert (found["iodepth"], found["rw"], found["size"]) == ("1", "randwrite", str(24 * MIB))
    assert (found["ramp_time"], found["runtime"], found["filename"]) == ("500ms", "2000ms", "/dev/vdb")


def test_no_two_guests_and_no_two_seeds_have_the_same_offsets() -> None:
    seeds = [
        options_of(job_of(load(), number, NO_CLIENT, ramp_seconds=0, run_seconds=1, seed=seed))["randseed"]
        for seed in range(5)
        for number in range(2)
    ]
    assert len(set(seeds)) == len(seeds)


def test_half_a_per_cent_is_refused() -> None:
    require_whole_per_cent(load(shared_pct=20.0))
    with pytest.raises(InputError, match=r"0\.5 per cent is not a whole number"):
        require_whole_per_cent(load(shared_pct=0.5))


def test_a_log_has_the_time_of_each_access() -> None:
    assert times_of("12, 2500000, 1, 4096, 0\n13, 100000, 0, 4096, 0\n") == (2.5, 0.1)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def guests(tmp_path: Path) -> Iterator[tuple[Client, ...]]:
    """Two fio servers of this machine with one file, in place of guests with one volume."""
    volume = tmp_path / "volume"
    volume.write_bytes(b"\0" * 24 * MIB)
    options = {"filename": str(volume), "direct": "0", "ioengine": "psync"}
    clients = [Client(f"c{n}", options, 24 * MIB, address=f"127.0.0.1,{free_port()}") for n in range(2)]
    servers = [subprocess.Popen(["fio", f"--server={client.address}"], cwd=tmp_path) for client in clients]
    try:
        deadline = time.monotonic() + 30
        while any(why_unreachable(client, timeout_seconds=1) for client in clients):
            assert time.monotonic() < deadline, "a server never listened"
            time.sleep(0.05)
        yield tuple(clients)
    finally:
        for server in servers:
            server.terminate()
            server.wait(timeout=20)


@pytest.mark.fio
@pytest.mark.parametrize("pct", [0.0, 25.0, 100.0])
def test_fio_accesses_the_regions_in_the_planned_shares(
    guests: tuple[Client, ...], pct: float, tmp_path: Path
) -> None:
    plan = load(shared_pct=pct)
    logs = [tmp_path / f"accesses.{client.name}" for client in guests]
    guests = tuple(
        replace(client, fio_options={**client.fio_options, "write_iolog": str(log)})
        for client, log in zip(guests, logs, strict=True)
    )
    run = run_in_guests(plan, guests, ramp_seconds=0.0, run_seconds=1.0, seed=3)
    first = []
    for number, (log, outcome) in enumerate(zip(logs, run.outcomes(), strict=True)):
        lines = [line.split() for line in log.read_text().splitlines() if " write " in line]
        offsets = [int(words[-2]) for words in lines]
        assert outcome["n"] == pytest.approx(len(offsets), abs=1)
        regions = [offset // plan.region_nbytes for offset in offsets]
        assert set(regions) <= {0, number + 1}
        n, share = len(regions), pct / 100
        assert n > 100
        # Five standard deviations of a binomial distribution.
        assert abs(regions.count(0) - share * n) <= 5 * math.sqrt(n * share * (1 - share))
        assert all(offset % 4096 == 0 for offset in offsets)
        assert len(set(offsets)) > 50
        first.append([offset % plan.region_nbytes for offset in offsets[:20]])
    assert first[0] != first[1], "each guest has random offsets of its own"


@pytest.mark.fio
def test_the_log_of_a_server_has_all_accesses_of_the_measured_time(
    guests: tuple[Client, ...], tmp_path: Path
) -> None:
    """As many as in the list that fio writes for replays: with their moments, the ramp's among them."""
    lists = [tmp_path / f"accesses.{client.name}" for client in guests]
    limited = [
        replace(one, fio_options={**one.fio_options, "rate_iops": "200", "write_iolog": str(accesses)})
        for one, accesses in zip(guests, lists, strict=True)
    ]
    run = run_in_guests(load(), limited, ramp_seconds=0.5, run_seconds=4.0, seed=3)
    for accesses, outcome in zip(lists, run.outcomes(), strict=True):
        lines = [line.split() for line in accesses.read_text().splitlines() if " write " in line]
        seconds = [int(words[0]) / 1e6 for words in lines]
        assert max(seconds) > 4.0, "the run lasted as long as it should"
        # The list's clock and the ramp's differ by the time in which fio opens its files.
        fewest, most = (sum(moment > 0.5 + slack for moment in seconds) for slack in (0.2, -0.2))
        assert 0 < fewest < most < len(seconds), "the ramp has accesses too"
        assert fewest <= outcome["n"] <= most
        assert outcome["seconds"]["access"] == pytest.approx(sum(outcome["times_ms"]) / 1000)


@pytest.mark.fio
def test_a_guest_without_its_volume_is_named(guests: tuple[Client, ...], tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")  # fio creates folders, but with this option no file
    lost = Client("c1", {"filename": gone, "allow_file_create": "0"}, 24 * MIB, address=guests[1].address)
    with pytest.raises(ClusterError, match="c1"):
        run_in_guests(load(), (guests[0], lost), ramp_seconds=0, run_seconds=0.5, seed=1)
