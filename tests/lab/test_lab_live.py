"""The lab with real daemons, disks and devices."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from other_user import as_other_user

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.core.errors import ClusterError, HostError
from cephfit.core.journal import TargetLock
from cephfit.core.protocols import Client
from cephfit.lab import machine, registry
from cephfit.lab.cluster import Lab
from cephfit.lab.daemons import processes
from cephfit.lab.daemons.bootstrap import crush_map_text
from cephfit.lab.daemons.ceph_programs import CephPrograms, root_of
from cephfit.lab.devices import disks, image_export
from cephfit.lab.devices.disks import mounts
from cephfit.lab.devices.throttle import find_throttle
from cephfit.lab.lab_spec import DiskLimits, LabSpec
from cephfit.lab.workloads.pgbench import PgBench, PgBenchSpec
from cephfit.lab.workloads.postgres import MemoryGroup

pytestmark = [pytest.mark.root, pytest.mark.ceph]

Cephfit = Callable[..., subprocess.CompletedProcess[str]]
TracesOf = Callable[[Path], list[str]]
IMAGE_NBYTES = 64 << 20


@pytest.fixture
def admin(lab_cluster: Lab) -> Iterator[RadosAdmin]:
    connection = RadosAdmin(lab_cluster.conf)
    yield connection
    connection.close()


def rbd(lab: Lab, *arguments: str) -> bytes:
    return subprocess.run(["rbd", "-c", str(lab.conf), *arguments], capture_output=True, check=True).stdout


@pytest.fixture
def image(lab_cluster: Lab) -> Iterator[Callable[[str, int], Path]]:
    """Creates an image in the lab's pool and attaches it.

    The image stays in the lab, which goes as a whole: the watch of an export that was killed lasts 30 s, and an
    image that is watched cannot be removed.
    """
    names = []

    def make(name: str, nbytes: int = IMAGE_NBYTES) -> Path:
        rbd(lab_cluster, "create", f"rbd/{name}", "--size", f"{nbytes}B")
        names.append(name)
        return image_export.attach(
            name, pool="rbd", conf=lab_cluster.conf, folder=lab_cluster.folder, nbytes=nbytes
        )

    yield make
    for name in names:
        image_export.detach(name, pool="rbd", folder=lab_cluster.folder)


def test_the_lab_is_healthy_and_its_disks_have_their_attributes(lab_cluster: Lab) -> None:
    status = lab_cluster.status()
    assert (status.health, status.pgs, status.dead) == ("HEALTH_OK", {"active+clean": 32}, ())
    assert Counter((d.device_class, d.rotational) for d in status.osd_disks) == {
        ("hdd", True): 2,
        ("ssd", False): 2,
    }
    assert {d.host for d in status.osd_disks if d.device_class == "hdd"} == {"host0", "host1"}
    assert all(d.limits == lab_cluster.spec.limits[d.device_class] for d in status.osd_disks)


def test_too_few_asynchronous_ios_are_reported_before_anything_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aio-nr").write_text("65536\n")
    (tmp_path / "aio-max-nr").write_text("65536\n")
    monkeypatch.setattr(machine, "_KERNEL_LIMITS", tmp_path)
    with pytest.raises(HostError, match="4 OSDs need 8192 asynchronous I/Os, and 0 of this machine's 65536"):
        Lab.up("noaio", folder=tmp_path / "lab")
    assert not (tmp_path / "lab").exists()
    assert "noaio" not in registry.lab_names()


def test_osds_take_the_defaults_of_their_kind_of_disk(lab_cluster: Lab, admin: RadosAdmin) -> None:
    rotational = {o["id"]: o["bluestore_bdev_rotational"] for o in admin.command("osd metadata")}
    assert {osd: value == "1" for osd, value in rotational.items()} == {
        osd: lab_cluster.device_class(osd) == "hdd" for osd in lab_cluster.osd_ids()
    }


def test_access_requires_a_key(lab_cluster: Lab, tmp_path: Path) -> None:
    keyless = tmp_path / "ceph.conf"
    keyless.write_text(lab_cluster.conf.read_text().replace(f"{lab_cluster.folder}/keyring", "/dev/null"))
    tried = subprocess.run(
        ["ceph", "-c", str(keyless), "--connect-timeout", "5", "status"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert tried.returncode != 0
    assert lab_cluster.keyring.stat().st_mode & 0o077 == 0


def test_rules_place_copies_on_their_device_classes(lab_cluster: Lab, admin: RadosAdmin) -> None:
    rules = {rule["rule_name"]: rule["rule_id"] for rule in admin.command("osd crush rule dump")}
    assert set(rules) == {"any", "hdd", "ssd", "hybrid"}
    admin.command("osd pool create", pool="hybrid-test", pg_num=16, rule="hybrid")
    host = {osd: host for osd, (host, _) in enumerate(lab_cluster.spec.osds)}
    try:
        for pg in range(16):
            primary, replica = admin.command("pg map", pgid=f"{_pool_id(admin, 'hybrid-test')}.{pg:x}")["up"]
            assert (lab_cluster.device_class(primary), lab_cluster.device_class(replica)) == ("ssd", "hdd")
            assert host[primary] != host[replica]
    finally:
        sure = {"yes_i_really_really_mean_it": True}
        admin.command("osd pool delete", pool="hybrid-test", pool2="hybrid-test", **sure)


def _pool_id(admin: RadosAdmin, name: str) -> int:
    return int(next(pool["pool"] for pool in admin.command("osd dump")["pools"] if pool["pool_name"] == name))


def test_the_crush_map_compiles_for_more_hosts(tmp_path: Path) -> None:
    """Hybrid pairs alternate over the hosts; 3 hosts, 1,024 placements, never both copies on one host."""
    spec = LabSpec(n_hosts=3)
    (tmp_path / "map.txt").write_text(crush_map_text(spec))
    subprocess.run(["crushtool", "-c", "map.txt", "-o", "map"], cwd=tmp_path, check=True)
    argv = ["crushtool", "-i", "map", "--test", "--rule", "3", "--num-rep", "2", "--show-mappings"]
    shown = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    placements = {tuple(json.loads(line[line.index("[") :])) for line in shown.splitlines()}
    assert {(spec.osds[s][1], spec.osds[h][1]) for s, h in placements} == {("ssd", "hdd")}
    assert all(spec.osds[s][0] != spec.osds[h][0] for s, h in placements)
    assert len(placements) == 3


def test_devices_are_the_images(lab_cluster: Lab, image: Callable[[str], Path]) -> None:
    """Two devices at once: data written to one is only in its image; discards free it again."""
    devices = {name: image(name) for name in ("one", "two")}
    assert len(set(devices.values())) == 2
    payload = {name: os.urandom(1 << 20) for name in devices}
    for name, device in devices.items():
        assert disks.device_nbytes(device) == IMAGE_NBYTES
        fd = os.open(device, os.O_WRONLY)
        os.pwrite(fd, payload[name], IMAGE_NBYTES - (1 << 20))
        os.fsync(fd)
        os.close(fd)
    for name, device in devices.items():
        assert rbd(lab_cluster, "export", "--no-progress", f"rbd/{name}", "-")[-(1 << 20) :] == payload[name]
        again = image_export.attach(
            name, pool="rbd", conf=lab_cluster.conf, folder=lab_cluster.folder, nbytes=IMAGE_NBYTES
        )
        assert again == device, "attaching twice is attaching once"
    subprocess.run(["blkdiscard", str(devices["one"])], check=True)
    assert not any(rbd(lab_cluster, "export", "--no-progress", "rbd/one", "-"))


def test_a_missing_image_is_named(lab_cluster: Lab, traces_of: TracesOf) -> None:
    with pytest.raises(ClusterError, match=r"the image cannot be attached: .*No such file"):
        image_export.attach(
            "absent", pool="rbd", conf=lab_cluster.conf, folder=lab_cluster.folder, nbytes=IMAGE_NBYTES
        )
    assert traces_of(lab_cluster.folder / "exports" / "rbd@absent") == []


def test_an_image_of_another_size_is_refused(lab_cluster: Lab, image: Callable[[str], Path]) -> None:
    image("short")
    with pytest.raises(ClusterError, match=f"the image has {IMAGE_NBYTES} bytes, not {2 * IMAGE_NBYTES}"):
        image_export.attach(
            "short", pool="rbd", conf=lab_cluster.conf, folder=lab_cluster.folder, nbytes=2 * IMAGE_NBYTES
        )


@pytest.mark.skipif(image_export.export_path() != "fuse", reason="this kernel has a shorter way than FUSE")
def test_an_export_whose_daemon_was_killed_is_detached_and_attached_again(
    lab_cluster: Lab, image: Callable[[str], Path], traces_of: TracesOf
) -> None:
    device = image("mortal")
    home = lab_cluster.folder / "exports" / "rbd@mortal"
    processes.kill(processes.of_folder(home))
    image_export.detach("mortal", pool="rbd", folder=lab_cluster.folder)
    assert traces_of(home) == []
    assert disks.backing_file(device) is None
    again = image_export.attach(
        "mortal", pool="rbd", conf=lab_cluster.conf, folder=lab_cluster.folder, nbytes=IMAGE_NBYTES
    )
    assert disks.device_nbytes(again) == IMAGE_NBYTES


@pytest.mark.skipif(image_export.export_path() != "fuse", reason="this kernel has a shorter way than FUSE")
@pytest.mark.parametrize("wanted", [True, False])
def test_the_clients_rbd_cache_option_reaches_librbd(
    lab_cluster: Lab, image: Callable[[str], Path], tmp_path: Path, wanted: bool
) -> None:
    """QEMU overrides rbd_cache by its cache mode; the export's admin socket has the effective value."""
    name = f"cached-{wanted}"
    image(name)
    conf = tmp_path / "client.conf"
    socket = f"{lab_cluster.folder}/run/export-$pid.asok"
    base = lab_cluster.conf.read_text()
    conf.write_text(
        base.replace("admin_socket =\n", f"admin_socket = {socket}\nrbd_cache = {str(wanted).lower()}\n")
    )
    image_export.attach(name, pool="rbd", conf=conf, folder=lab_cluster.folder, nbytes=IMAGE_NBYTES)
    (pid,) = processes.of_folder(lab_cluster.folder / "exports" / f"rbd@{name}")
    argv = ["ceph", "--admin-daemon", socket.replace("$pid", str(pid)), "config", "get", "rbd_cache"]
    answer = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert json.loads(answer) == {"rbd_cache": str(wanted).lower()}


def test_queue_values_of_a_reused_loop_device_are_reset(tmp_path: Path) -> None:
    """The kernel keeps scheduler and queue values of a detached device, which would change the next lab."""
    disks.make_sparse(tmp_path / "disk.img", 16 << 20)
    device = disks.attach_loop(tmp_path / "disk.img")
    queue = Path("/sys/block", device.name, "queue")
    (queue / "nr_requests").write_text("64")
    (queue / "read_ahead_kb").write_text("512")
    disks.detach_loop(device)
    again = disks.attach_loop(tmp_path / "disk.img")
    try:
        queue = Path("/sys/block", again.name, "queue")
        found = [(queue / key).read_text().strip() for key in ("nr_requests", "read_ahead_kb")]
        assert found == ["128", "128"]
        assert "[none]" in (queue / "scheduler").read_text()
    finally:
        disks.detach_loop(again)


def test_detaching_does_not_wait_for_a_device_reused_by_another_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = tmp_path / "ours.img", tmp_path / "theirs.img"
    for file in (ours, theirs):
        disks.make_sparse(file, 16 << 20)
    device = disks.attach_loop(ours)

    def detach_and_lose(argv: Sequence[str]) -> str:
        machine.run(argv)
        return machine.run(["losetup", str(device), str(theirs)])

    with monkeypatch.context() as patch:
        patch.setattr(disks, "run", detach_and_lose)
        disks.detach_loop(device, seconds=1)
    assert disks.loops_of(theirs) == {device: theirs}  # it still belongs to the other lab
    disks.detach_loop(device)


@pytest.mark.fio
def test_the_throttle_holds_a_disk_to_its_limits(tmp_path: Path) -> None:
    """A disk like an OSD's, 200 IOPS and 20 MiB/s; fio must find these within 15 %, and more without them."""
    disks.make_sparse(tmp_path / "disk.img", 256 << 20)
    device = disks.attach_loop(tmp_path / "disk.img")
    throttle, number = find_throttle(tmp_path), disks.device_number(device)
    try:
        throttle.set(number, DiskLimits(iops=200, nbytes_per_s=20 << 20))
        throttle.place([os.getpid()])
        assert fio(device, "randread", "4k")["iops"] == pytest.approx(200, rel=0.15)
        assert fio(device, "write", "1M")["bw_bytes"] == pytest.approx(20 << 20, rel=0.15)
        throttle.clear(number)
        assert throttle.limits(number) is None
        assert fio(device, "randread", "4k")["iops"] > 400
    finally:
        throttle.clear(number)
        disks.detach_loop(device)


def fio(device: Path, pattern: str, size: str) -> dict[str, float]:
    argv = ["fio", "--name=x", f"--filename={device}", f"--rw={pattern}", f"--bs={size}", "--direct=1"]
    argv += ["--ioengine=libaio", "--iodepth=8", "--time_based", "--runtime=3", "--output-format=json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    job: dict[str, dict[str, float]] = json.loads(done.stdout)["jobs"][0]
    return job["read" if "read" in pattern else "write"]


def test_a_commit_takes_the_time_of_a_disk_also_alone(lab_cluster: Lab, admin: RadosAdmin) -> None:
    seconds = []
    with admin.cluster.open_ioctx("rbd") as pool:
        for _ in range(10):
            started = time.monotonic()
            pool.write_full("commit", bytes(4096))
            seconds.append(time.monotonic() - started)
            time.sleep(0.02)
        pool.remove_object("commit")
    assert min(seconds) >= 1 / lab_cluster.spec.limits["hdd"].iops


def test_a_commit_of_an_osd_is_not_counted_as_many_ios(lab_cluster: Lab, admin: RadosAdmin) -> None:
    """Buffered writes of BlueFS, Ceph's default, come in pieces of 4 KiB, which the kernel merges afterwards."""
    names = [Path(d.device).name for d in lab_cluster.status().osd_disks if d.device_class == "hdd"]
    before = writes_and_merges(names)
    with admin.cluster.open_ioctx("rbd") as pool:
        for number in range(50):
            pool.write_full(f"commit-{number}", bytes(32 * 1024))
        n_writes, n_merges = (now - then for now, then in zip(writes_and_merges(names), before, strict=True))
        for number in range(50):
            pool.remove_object(f"commit-{number}")
    assert n_writes >= 2 * 50, "each of both copies is committed"
    assert n_merges < n_writes


def writes_and_merges(devices: Sequence[str]) -> tuple[int, int]:
    """Return the writes that devices completed, and how many more the kernel had merged into these."""
    fields = [line.split() for line in Path("/proc/diskstats").read_text().splitlines()]
    its = [line for line in fields if line[2] in devices]
    return sum(int(line[7]) for line in its), sum(int(line[8]) for line in its)


def test_limits_are_set_again_after_the_lifting_process_died(lab_cluster: Lab) -> None:
    code = (
        "import sys, time; from pathlib import Path; from cephfit.lab.cluster import Lab\n"
        "with Lab.open(folder=Path(sys.argv[1])).full_speed(): print('lifted', flush=True); time.sleep(60)"
    )
    argv = [sys.executable, "-c", code, str(lab_cluster.folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "lifted\n"
        assert [d.limits for d in lab_cluster.status().osd_disks] == [None] * 4, "respected while it lives"
        other.kill()
    assert [d.limits is None for d in lab_cluster.status().osd_disks] == [False] * 4


def test_restarted_osds_are_new_processes_of_a_healthy_cluster(lab_cluster: Lab) -> None:
    before = {d.name: d.pid for d in lab_cluster.status().daemons}
    lab_cluster.restart_osds([1])
    status = lab_cluster.status()
    changed = [d.name for d in status.daemons if d.pid != before[d.name]]
    assert (changed, status.health, status.pgs) == (["osd.1"], "HEALTH_OK", {"active+clean": 32})


def test_a_stopped_osd_has_done_all_writes_that_it_deferred(lab_cluster: Lab, admin: RadosAdmin) -> None:
    """Otherwise its next start may do them over newer data, and it does not start again."""
    with admin.cluster.open_ioctx("rbd") as pool:
        for number in range(50):
            pool.write_full(f"deferred-{number}", b"x" * 4096)
    lab_cluster.stop()
    try:
        programs = CephPrograms(lab_cluster.folder, root_of(lab_cluster.spec.release))
        tool = ["ceph-kvstore-tool", "bluestore-kv"]
        folders = [str(lab_cluster.folder / f"osd.{osd}") for osd in lab_cluster.osd_ids()]
        deferred = {folder: programs.run([*tool, folder, "list", "L"]) for folder in folders}
    finally:
        lab_cluster.start()
    assert deferred == dict.fromkeys(folders, "")


@pytest.mark.postgres
def test_pgbench_runs_on_an_image_and_leaves_no_trace(lab_cluster: Lab, image: Callable[[str, int], Path]) -> None:
    spec = PgBenchSpec(scale=2, clients=2, warmup_seconds=1, max_wal_nbytes=64 << 20)
    device = image("pg", 400 << 20)
    client = Client("c0", {"filename": str(device)}, 400 << 20, device)
    workload = PgBench(spec)
    with lab_cluster.full_speed():
        workload.prepare(client)
        tps, evidence = workload.run(client, 2, seed=1)
    assert tps > 0
    assert "number of failed transactions: 0" in evidence["output"]
    assert evidence["database_nbytes"] > 2 * 12 * (1 << 20)
    workload.cleanup(client)
    assert disks.device_number(device) not in {m.device for m in mounts()}
    assert not MemoryGroup.of_device(device).exists()
    assert not Path(f"/run/cephfit/pgbench-{device.name}").exists()


@pytest.mark.postgres
def test_postgres_dies_with_cephfit_and_is_cleaned_up_after(
    lab_cluster: Lab, image: Callable[[str, int], Path], traces_of: TracesOf
) -> None:
    device = image("pg-killed", 400 << 20)
    code = (
        "import sys; from pathlib import Path\n"
        "from cephfit.lab.workloads.pgbench import PgBench, PgBenchSpec\n"
        "from cephfit.core.protocols import Client\n"
        "client = Client('c0', {}, 400 << 20, Path(sys.argv[1]))\n"
        "work = PgBench(PgBenchSpec(scale=1, warmup_seconds=0, max_wal_nbytes=64 << 20))\n"
        "work.prepare(client); print('prepared', flush=True); work.run(client, 60, seed=1)"
    )
    place = Path(f"/run/cephfit/pgbench-{device.name}")
    with lab_cluster.full_speed():
        argv = [sys.executable, "-c", code, str(device)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as runner:
            assert runner.stdout is not None
            assert runner.stdout.readline() == "prepared\n"
            until = time.monotonic() + 30
            while not any("--time" in processes.command_line(pid) for pid in processes.of_folder(place)):
                assert time.monotonic() < until, "pgbench did not start"
                time.sleep(0.05)
            runner.kill()
    assert processes.wait_gone(processes.of_folder(place), 5) == []
    PgBench().cleanup(Client("c0", {}, 400 << 20, device))
    assert traces_of(place) == []
    assert not MemoryGroup.of_device(device).exists()


_OF_THIS_LAB = DiskLimits(iops=487, nbytes_per_s=149 << 20)
"""Limits that no other lab has: labs of other tests may get the same loop devices, and leave limits there."""


def test_a_second_lab_survives_kills_and_is_removed(
    lab_cluster: Lab, cephfit: Cephfit, traces_of: TracesOf, tmp_path: Path
) -> None:
    folder = tmp_path / "second"
    made = cephfit("lab", "up", "--name", "second", "--folder", str(folder), "--json")
    assert made.returncode == 0, made.stderr
    report = json.loads(made.stdout)
    assert report["up_seconds"] < 60
    assert (report["health"], report["monitor"] != lab_cluster.status().monitor) == ("HEALTH_OK", True)
    numbers = [disks.device_number(Path(d["device"])) for d in report["osd_disks"]]

    twice = cephfit("lab", "up", "--name", "second")
    assert (twice.returncode, "lab 'second' already exists" in twice.stderr) == (2, True)

    victim = next(d["pid"] for d in report["daemons"] if d["name"] == "osd.2")
    os.kill(victim, signal.SIGKILL)
    processes.wait_gone([victim], 10)
    dead = cephfit("lab", "status", "--name", "second", "--json")
    assert (dead.returncode, json.loads(dead.stdout)["dead"]) == (2, ["osd.2"])
    assert "osd.2" in dead.stderr and "cephfit lab start --name second" in dead.stderr
    healed = cephfit("lab", "start", "--name", "second", "--json")
    assert (healed.returncode, json.loads(healed.stdout)["health"]) == (0, "HEALTH_OK"), healed.stderr

    second = Lab.open("second")
    throttle = find_throttle(folder)
    for number in numbers:
        throttle.set(number, _OF_THIS_LAB)
    processes.kill(processes.of_folder(folder))  # as after a power cut: no daemon, no loop device
    for osd in second.osd_ids():
        disks.detach_loop(second.osd_disk(osd))
    disks.make_sparse(tmp_path / "other.img", 16 << 20)
    taken = Path(report["osd_disks"][1]["device"])  # so that the lab gets another device, and leaves no limit here
    is_taken = not subprocess.run(["losetup", str(taken), str(tmp_path / "other.img")], check=False).returncode
    booted = cephfit("lab", "start", "--name", "second", "--json")
    assert (booted.returncode, json.loads(booted.stdout)["health"]) == (0, "HEALTH_OK"), booted.stderr
    now = json.loads(booted.stdout)["osd_disks"]
    assert all(d["limits"] for d in now)
    rbd(second, "create", "rbd/x", "--size", "64M")
    device = image_export.attach("x", pool="rbd", conf=second.conf, folder=folder, nbytes=64 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(device)], check=True)
    (tmp_path / "mnt").mkdir()
    subprocess.run(["mount", str(device), str(tmp_path / "mnt")], check=True)
    processes.kill(processes.of_folder(folder))  # all processes, with the volume mounted
    (folder / "target").mkdir(exist_ok=True)
    sweeping = TargetLock(folder / "target" / "lock", "lab:second")
    held = cephfit("lab", "down", "--name", "second")
    assert (held.returncode, f"process {os.getpid()}" in held.stderr) == (2, True), "a sweep is at work on it"
    assert folder.exists()
    sweeping.release()
    if is_taken:  # else a lab of another test was faster
        disks.detach_loop(taken)
    current = {disks.device_number(Path(d["device"])) for d in now}
    for number in current:
        throttle.set(number, _OF_THIS_LAB)
    gone = cephfit("lab", "down", "--name", "second", "--json")
    assert gone.returncode == 0, gone.stderr
    assert traces_of(folder) == []
    assert not any(m.point == tmp_path / "mnt" for m in mounts())
    left = {number: throttle.limits(number) for number in {*numbers, *current}}
    assert _OF_THIS_LAB not in left.values(), left
    assert lab_cluster.status().health == "HEALTH_OK", "the other lab was not touched"

    again = cephfit("lab", "down", "--name", "second")
    assert (again.returncode, lab_cluster.name in again.stderr) == (2, True), "it names the labs there are"


@pytest.mark.parametrize(
    "seconds", [pytest.param(0.7, marks=pytest.mark.slow), 2.0, pytest.param(4.0, marks=pytest.mark.slow)]
)
def test_a_lab_killed_during_creation_can_be_removed(
    cephfit: Cephfit, traces_of: TracesOf, tmp_path: Path, seconds: float
) -> None:
    folder = tmp_path / "half"
    argv = [sys.executable, "-m", "cephfit.cli.main", "lab", "up", "--name", "half", "--folder", str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as maker:
        while not (folder / "lab.json").exists():
            time.sleep(0.02)
        time.sleep(seconds)
        maker.kill()
    gone = cephfit("lab", "down", "--name", "half")
    assert gone.returncode == 0, gone.stderr
    time.sleep(0.5)
    assert traces_of(folder) == []


def test_a_lab_with_a_deleted_folder_can_be_removed(cephfit: Cephfit, traces_of: TracesOf, tmp_path: Path) -> None:
    folder = tmp_path / "deleted"
    Lab.up("deleted", folder=folder)
    shutil.rmtree(folder)
    assert traces_of(folder) != []
    assert cephfit("lab", "down", "--name", "deleted").returncode == 0
    assert traces_of(folder) == []


def test_without_root_there_is_an_error(cephfit: Cephfit, tmp_path: Path) -> None:
    tried = cephfit("lab", "up", "--name", "x", "--folder", str(tmp_path / "x"), prefix=as_other_user())
    assert tried.returncode == 2
    assert "a lab needs root (loop devices, mounts, control groups), but this is user id 65534" in tried.stderr
    assert tried.stderr.endswith("run it with sudo\n")
