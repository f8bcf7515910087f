"""The real fio: on files, on a loop device held against the kernel, dying with its parent, and missing."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cephfit.core import child_process
from cephfit.core.errors import ClusterError, HostError, InputError
from cephfit.core.protocols import Client
from cephfit.core.units import KIB, MIB
from cephfit.core.values.cells import Cell
from cephfit.measure.engine import CellRun, disagreement
from cephfit.measure.fio.fio_files import render_job
from cephfit.measure.fio.fio_local import FioEngine
from cephfit.sweep.sweep_plan import Sweep

pytestmark = [pytest.mark.fio, pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")]


def a_run(sweep: Sweep, cell: str, clients: Sequence[Client], **changes: object) -> CellRun:
    measurement = replace(sweep.measurement, run_seconds=0.5, **changes)  # type: ignore[arg-type]
    seeds = {client.name: 11 + i for i, client in enumerate(clients)}
    return CellRun("A", Cell.parse(cell), 0, 0, measurement, clients, seeds)


def files(folder: Path, n: int, nbytes: int = 4 * MIB) -> list[Client]:
    clients = []
    for i in range(n):
        path = folder / f"volume{i}"
        path.write_bytes(random.Random(i).randbytes(nbytes))
        clients.append(Client(f"c{i}", {"filename": str(path)}, nbytes))
    return clients


@pytest.mark.parametrize("cell", ["4K-randread", "1M-write"])
def test_every_client_has_figures_of_its_own(small_sweep: Sweep, tmp_path: Path, cell: str) -> None:
    run = a_run(small_sweep, cell, files(tmp_path, 2))
    outcome = FioEngine().run(run)
    assert set(outcome.clients) == {"c0", "c1"}
    for given in outcome.clients.values():
        assert given.metrics is not None, given.failure
        assert given.metrics.iops > 0
        assert given.metrics.runtime_ns >= 475_000_000
        assert "no block device" in given.uncounted
        cpu = given.evidence["cpu"]
        assert 0 < cpu["user"] + cpu["system"] < 1.1, "shares of one CPU, as the client is one thread"
    assert '"fio version"' in (outcome.fio_json or "")


@pytest.mark.root
@pytest.mark.parametrize("cell", ["4K-randread", "4K-write", "1M-read", "1M-randwrite"])
def test_the_kernel_counts_what_fio_counts(
    small_sweep: Sweep, loop_device: Callable[[int], Path], cell: str
) -> None:
    device = loop_device(16 * MIB)
    run = a_run(small_sweep, cell, [Client("c0", {"filename": str(device)}, 16 * MIB, device)], ramp_seconds=0.4)
    given = FioEngine().run(run).clients["c0"]
    assert given.metrics is not None, given.failure
    assert given.count is not None
    assert disagreement(given.metrics, given.count) == ""
    assert given.count.total_nbytes > given.metrics.n_ios * run.cell.size.benchmark_nbytes, "the ramp is in it"


@pytest.mark.root
def test_a_planted_disagreement_is_found(
    small_sweep: Sweep, loop_device: Callable[[int], Path], tmp_path: Path
) -> None:
    """The client says that /dev/A is its device, but fio is sent to another one."""
    claimed, used = loop_device(16 * MIB), loop_device(16 * MIB)
    run = a_run(small_sweep, "4K-read", [Client("c0", {"filename": str(used)}, 16 * MIB, claimed)])
    given = FioEngine().run(run).clients["c0"]
    assert given.metrics is not None
    assert given.count is not None
    why = disagreement(given.metrics, given.count)
    assert str(claimed) in why
    assert "counted only 0" in why


def test_a_client_that_fails_says_why_in_fios_words(small_sweep: Sweep, tmp_path: Path) -> None:
    good = files(tmp_path, 1)
    bad = Client("c9", {"filename": "/dev/null/volume"}, 4 * MIB)
    outcome = FioEngine().run(a_run(small_sweep, "4K-read", [*good, bad]))
    assert outcome.clients["c9"].metrics is None
    assert "Not a directory" in outcome.clients["c9"].failure


def test_an_option_that_fio_does_not_have_is_a_failure(small_sweep: Sweep, tmp_path: Path) -> None:
    (client,) = files(tmp_path, 1)
    client = replace(client, fio_options={**client.fio_options, "no_such_option": "1"})
    outcome = FioEngine().run(a_run(small_sweep, "4K-read", [client]))
    assert "no_such_option" in outcome.clients["c0"].failure


@pytest.mark.root
def test_no_room_is_an_error_and_not_a_sample(small_sweep: Sweep, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(("mount", "-t", "tmpfs", "-o", "size=2m", "none", folder), check=False)
    if mounted.returncode:
        pytest.skip("cannot mount a tmpfs")
    try:
        client = Client("c0", {"filename": str(folder / "volume")}, 8 * MIB)
        with pytest.raises(HostError, match="No space left"):
            FioEngine().run(a_run(small_sweep, "1M-write", [client], direct=False))
    finally:
        subprocess.run(("umount", folder), check=True)


def test_without_fio_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="apt install fio"):
        FioEngine().facts()


def test_warming_reads_every_volume_through(small_sweep: Sweep, tmp_path: Path) -> None:
    FioEngine().warm(a_run(small_sweep, "4K-read", files(tmp_path, 2)))
    missing = Client("c0", {"filename": "/dev/null/x"}, 4 * MIB)
    with pytest.raises(ClusterError, match="could") as caught:
        FioEngine().warm(a_run(small_sweep, "4K-read", [missing]))
    assert caught.value.where == "clients c0"
    assert "check the health" in caught.value.remedy


def test_a_run_that_does_not_end_is_killed(small_sweep: Sweep, tmp_path: Path) -> None:
    run = a_run(small_sweep, "4K-read", files(tmp_path, 1))
    run = replace(run, measurement=replace(run.measurement, run_seconds=30))
    started = time.monotonic()
    outcome = FioEngine(grace_seconds=-29).run(run)
    assert time.monotonic() - started < 15
    assert "did not end within" in outcome.clients["c0"].failure


def test_fio_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = tmp_path / "parent.py"
    program.write_text(
        "from cephfit.measure.fio import fio_local\n"
        "fio_local._run_fio('[c0]\\nioengine=null\\nsize=1g\\ntime_based=1\\nruntime=60\\nthread=1\\n'"
        f"'description={tmp_path}\\n', conf=None, timeout_seconds=100)\n"
    )
    parent = subprocess.Popen((sys.executable, str(program)))
    try:
        child = _wait_for(lambda: _child_named(parent.pid, "fio"))
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert _wait_for(lambda: _is_gone(child)), "fio outlived its parent"
    finally:
        parent.kill()


def test_the_job_says_what_the_sweep_file_says(small_sweep: Sweep, tmp_path: Path) -> None:
    clients = files(tmp_path, 2, 64 * KIB)
    lines = render_job(a_run(small_sweep, "4K-randread", clients)).splitlines()
    for line in (
        "rw=randread",
        "bs=4096",
        "ramp_time=200ms",
        "runtime=500ms",
        "iodepth=4",
        "direct=1",
        "thread=1",
    ):
        assert line in lines
    assert [line for line in lines if line.startswith("[")] == ["[global]", "[c0]", "[c1]"]
    assert [line for line in lines if line.startswith("randseed")] == ["randseed=11", "randseed=12"]
    assert "group_reporting" not in "\n".join(lines)
    evil = replace(clients[0], fio_options={"filename": "/x\nexec_prerun=/bin/false"})
    with pytest.raises(InputError):
        render_job(a_run(small_sweep, "4K-read", [evil]))


def test_clients_are_asked_for_blocks_by_their_seed(small_sweep: Sweep, tmp_path: Path) -> None:
    """The same seed asks for the same blocks, another one for others: seen in fio's own log of offsets."""

    def offsets(seed: int) -> list[str]:
        (client,) = files(tmp_path, 1)
        log = tmp_path / f"iolog{seed}"
        client = replace(client, fio_options={**client.fio_options, "write_iolog": str(log)})
        FioEngine().run(replace(a_run(small_sweep, "4K-randread", [client], iodepth=1), seeds={"c0": seed}))
        found = [line.split() for line in log.read_text().splitlines() if " read " in line]
        log.unlink()
        return [words[-2] for words in found][:50]

    assert len(set(offsets(1))) > 10
    assert offsets(1) == offsets(1)
    assert offsets(1) != offsets(2)


def _wait_for(found: Callable[[], int], seconds: float = 20) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := found():
            return value
        time.sleep(0.02)
    return 0


def _child_named(parent: int, name: str) -> int:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rsplit(")", 1)
        except OSError:
            continue
        if int(words[1].split()[1]) == parent and words[0].split("(", 1)[1] == name:
            return int(stat.parent.name)
    return 0


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_the_edge_uses_no_shell_string() -> None:
    """What is run is one constant program; everything that varies is an argument."""
    assert "$@" in child_process._ONLY_WITH_PARENT
    assert str(os.getpid()) not in child_process._ONLY_WITH_PARENT
