"""A program of the user as the workload: its steps, its output, its errors."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cephfit.core.errors import ClusterError, InputError, LackingError
from cephfit.core.protocols import Client, KeepOnly
from cephfit.lab.cluster import Lab
from cephfit.lab.daemons import processes
from cephfit.lab.workloads import program_workload
from cephfit.lab.workloads.program_workload import ProgramWorkload

MIB = 1 << 20
DESCRIBED = '{"name": "copy", "metric": "copies/s", "volume": "1M"}'
FIO_JOB = Path(__file__).parents[2] / "docs" / "examples" / "workloads" / "fio_job.py"

Made = Callable[..., ProgramWorkload]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    device = tmp_path / "device"
    device.write_bytes(bytes(2 * MIB))
    return Client("c0", {}, 2 * MIB, device)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Creates a shell program from its steps; each executed step is recorded in the file ``steps``."""

    def make(
        run: str = "echo 12.5", *, prepare: str = "true", describe: str = f"echo '{DESCRIBED}'"
    ) -> ProgramWorkload:
        return ProgramWorkload(program(tmp_path, run, prepare=prepare, describe=describe))

    return make


def program(
    folder: Path, run: str = "echo 12.5", *, prepare: str = "true", describe: str = f"echo '{DESCRIBED}'"
) -> Path:
    path = folder / "copy.sh"
    path.write_text(
        "#!/bin/sh\n"
        'echo "$1 $CEPHFIT_DEVICE $CEPHFIT_VOLUME_BYTES $CEPHFIT_SECONDS $CEPHFIT_SEED" >> steps\n'
        f'case "$1" in\ndescribe) {describe};;\nprepare) {prepare};;\nrun) {run};;\nesac\n'
    )
    path.chmod(0o755)
    return path


def steps_of(folder: Path) -> list[str]:
    return [line.rstrip() for line in (folder / "steps").read_text().splitlines()]


def test_it_is_cleaned_up_before_and_after_each_step(made: Made, client: Client, tmp_path: Path) -> None:
    workload = made('echo starting; echo 12.5; echo "" ', prepare='echo data > "$CEPHFIT_DEVICE"')
    assert (workload.name, workload.metric, workload.volume_nbytes) == ("copy", "copies/s", MIB)
    workload.prepare(client)
    assert client.device is not None and client.device.read_text() == "data\n"
    value, evidence = workload.run(client, 3.0, seed=7)
    assert value == 12.5
    assert evidence["output"] == "starting\n12.5\n\n"
    assert evidence["described"] == json.loads(DESCRIBED)
    about = f"{client.device} {2 * MIB}"
    assert steps_of(tmp_path) == [
        "describe",
        f"cleanup {about}",
        f"prepare {about}",
        f"cleanup {about}",
        f"cleanup {about}",
        f"run {about} 3 7",
        f"cleanup {about}",
    ]


def test_a_program_may_state_how_many_operations_it_did(made: Made, client: Client) -> None:
    _, evidence = made("echo operations 360; echo 980.5").run(client, 3.0, seed=7)
    assert evidence["operations"] == 360
    _, evidence = made("echo operations unknown; echo 980.5").run(client, 3.0, seed=7)
    assert "operations" not in evidence


def test_a_program_may_state_when_it_was_measured(made: Made, client: Client) -> None:
    stating = (
        'begin=$(date +%s.%N); sleep 0.2; end=$(date +%s.%N); sleep 0.2; echo "measured $begin $end"; echo 9.5'
    )
    _, evidence = made(stating).run(client, 3.0, seed=7)
    assert 0.15 < (evidence["finished_ns"] - evidence["started_ns"]) / 1e9 < 0.35
    with pytest.raises(ClusterError, match="not a part of the time"):
        made("echo measured 1.5 2.5; echo 9.5").run(client, 3.0, seed=7)


def test_of_a_recording_only_the_measured_time_is_kept(tmp_path: Path, client: Client) -> None:
    log: list[object] = []

    @contextmanager
    def observe(device: Path) -> Iterator[KeepOnly]:
        log.append(device)
        yield lambda begin_ns, end_ns: log.append((begin_ns, end_ns))
        log.append("ended")

    stating = 'begin=$(date +%s.%N); sleep 0.1; echo "measured $begin $(date +%s.%N)"; echo 9.5'
    _, evidence = ProgramWorkload(program(tmp_path, stating), observe=observe).run(client, 3.0, seed=7)
    assert log == [client.device, "ended", (evidence["started_ns"], evidence["finished_ns"])]


def test_another_program_of_the_same_name_is_another_workload(made: Made) -> None:
    assert made().description() == made().description()
    assert made().description() != made("echo 13").description()


@pytest.mark.parametrize(
    ("run", "error", "words"),
    [
        ("echo no room left >&2; exit 1", ClusterError, "ended with code 1: no room left"),
        ("exit 3", ClusterError, "ended with code 3: no output"),
        ("echo there is no fio >&2; exit 2", LackingError, "ended with code 2: there is no fio"),
        ("no-such-program-at-all", LackingError, "not found"),
        ("echo fast", ClusterError, "its last line is not a number above 0: 'fast'"),
        ("echo 0", ClusterError, "its last line is not a number above 0: '0'"),
        ("echo inf", ClusterError, "its last line is not a number above 0"),
        ("true", ClusterError, "its last line is not a number above 0: ''"),
        ("kill -9 $$", ClusterError, "ended with code"),
    ],
)
def test_a_run_without_a_value(
    run: str, error: type[Exception], words: str, made: Made, client: Client, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words) as raised:
        made(run).run(client, 1, seed=1)
    assert type(raised.value) is error
    assert steps_of(tmp_path)[-1].startswith("cleanup ")


def test_a_timeout_kills_the_program_and_its_children(
    made: Made, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(program_workload, "_AROUND_RUN_SECONDS", 0.2)
    with pytest.raises(ClusterError, match=r"no end within 1\.2 s"):
        made("sleep 1000 & echo $! > pid; wait").run(client, 1, seed=1)
    assert processes.wait_gone([int((tmp_path / "pid").read_text())], 10) == []


def test_processes_left_running_are_not_waited_for(made: Made, client: Client, tmp_path: Path) -> None:
    begun = time.monotonic()
    value, _ = made("sleep 60 & echo $! > pid; echo 4").run(client, 1, seed=1)
    subprocess.run(["kill", (tmp_path / "pid").read_text().strip()], check=True)
    assert (value, time.monotonic() - begun < 30) == (4.0, True)


@pytest.mark.parametrize(
    ("describe", "words"),
    [
        ("exit 1", "ended with code 1"),
        ("echo hello", "no JSON"),
        ("echo '[1]'", "not a JSON object"),
        ('echo \'{"name": "x", "metric": "ops"}\'', "'volume' is missing or not text"),
        ('echo \'{"name": "My App", "metric": "ops", "volume": "1G"}\'', "cannot be its name"),
        ('echo \'{"name": "pgbench", "metric": "tps", "volume": "1G"}\'', "cannot be its name"),
        ('echo \'{"name": "x", "metric": "ops", "volume": "much"}\'', "much"),
        ('echo \'{"name": "x", "metric": "ops", "volume": 4096}\'', "'volume' is missing or not text"),
        ('echo \'{"name": "x", "metric": "ops", "volume": "1G", "share": NaN}\'', "NaN is not a number"),
    ],
)
def test_a_program_that_does_not_describe_itself(describe: str, words: str, made: Made) -> None:
    with pytest.raises(InputError, match=words) as raised:
        made(describe=describe)
    assert "copy.sh describe" in str(raised.value)


def test_a_file_that_is_not_a_program_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    for path, words in (
        (plain, "not an executable"),
        (tmp_path, "not an executable"),
        (tmp_path / "none", "not exist"),
    ):
        with pytest.raises(InputError, match=words):
            ProgramWorkload(path)


def test_a_volume_that_is_too_small_or_has_no_device_is_refused(made: Made, client: Client) -> None:
    workload = made()
    with pytest.raises(InputError, match="copy needs 1M, the volume has 512K"):
        workload.prepare(Client("c0", {}, MIB // 2, client.device))
    with pytest.raises(InputError, match="needs a block device"):
        workload.run(Client("c0", {}, 2 * MIB), 1, seed=1)


@pytest.mark.skipif(shutil.which("fio") is None, reason="needs fio")
def test_a_fio_job_is_such_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of docs/workloads.md, on a job as `cephfit trace jobs` writes it."""
    job = tmp_path / "My app.fio"
    job.write_text(
        "[global]\nioengine=psync\nruntime=60s\ntime_based=1\nrandrepeat=1\n"
        "[workload]\nfilename=${CEPHFIT_DEVICE}\nsize=4194304\nrw=randrw\nrwmixread=50\nbs=4096\n"
    )
    monkeypatch.setenv("FIO_JOB", str(job))
    monkeypatch.setenv("VOLUME", "4M")
    device = tmp_path / "device"
    device.write_bytes(bytes(4 * MIB))
    workload, client = ProgramWorkload(FIO_JOB), Client("c0", {}, 4 * MIB, device)
    assert (workload.name, workload.metric) == ("my-app", "accesses/s")
    workload.prepare(client)
    assert device.read_bytes().count(0) < MIB  # not unwritten blocks
    begun = time.monotonic()
    value, _ = workload.run(client, 1, seed=3)
    assert value > 0
    assert time.monotonic() - begun < 50  # not the 60 s of the job
    monkeypatch.delenv("FIO_JOB")
    with pytest.raises(InputError, match="FIO_JOB is to be the path of a fio job"):
        ProgramWorkload(FIO_JOB)


@pytest.mark.skipif(shutil.which("fio") is None, reason="needs fio")
def test_fio_dies_with_the_cephfit_that_was_killed(tmp_path: Path) -> None:
    """A surviving fio would disturb later runs."""
    job, device = tmp_path / "slow.fio", tmp_path / "device"
    job.write_text("[slow]\nioengine=psync\nfilename=${CEPHFIT_DEVICE}\nsize=1m\nrw=write\nrate_iops=5\n")
    device.write_bytes(bytes(2 * MIB))
    code = (
        "import sys; from pathlib import Path; from cephfit.core.protocols import Client\n"
        "from cephfit.lab.workloads.program_workload import ProgramWorkload\n"
        "client = Client('c0', {}, 2 << 20, Path(sys.argv[2]))\n"
        "ProgramWorkload(Path(sys.argv[1])).run(client, 60, seed=1)"
    )
    environment = {**os.environ, "FIO_JOB": str(job), "VOLUME": "2M", "TMPDIR": str(tmp_path)}
    argv = [sys.executable, "-c", code, str(FIO_JOB), str(device)]
    with subprocess.Popen(argv, env=environment) as driver:
        until = time.monotonic() + 30
        while not (running := started_with(str(device))):
            assert time.monotonic() < until, "fio did not start"
            time.sleep(0.05)
        driver.kill()
    assert processes.wait_gone(running, 10) == []
    assert started_with(str(device)) == []


def started_with(word: str) -> list[int]:
    """Processes whose environment names the device: the program, and fio below it."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environment = (place / "environ").read_bytes().split(b"\0")
            if f"CEPHFIT_DEVICE={word}".encode() in environment and b"fio" in (place / "comm").read_bytes():
                found.append(int(place.name))
    return found


@pytest.mark.root
@pytest.mark.ceph
def test_a_program_on_a_real_cluster_is_traced(
    lab_cluster: Lab, cephfit: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    path = program(
        tmp_path,
        'dd if="$CEPHFIT_DEVICE" of=/dev/null bs=64k count=40 iflag=direct status=none; echo 40',
        prepare='dd if=/dev/urandom of="$CEPHFIT_DEVICE" bs=1M count=8 oflag=direct status=none',
        describe="""echo '{"name": "copy", "metric": "copies/s", "volume": "16M"}'""",
    )
    target, folder = f"lab:{lab_cluster.folder}", f"{tmp_path}/trace/"
    argv = ("--target", target, "--workload", f"program:{path}", "--seconds", "1", "-o", folder)
    done = cephfit("trace", "workload", *argv, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["workload"], said["metric"], said["value"]) == ("copy", "copies/s", 40.0)
    profiled = cephfit("trace", "profile", folder, "--json")
    assert profiled.returncode == 0, profiled.stderr
    profile = json.loads(profiled.stdout)
    assert sum(profile["accesses"]["read"].values()) == 40
    assert "run /dev/" in (tmp_path / "steps").read_text()


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.ceph
def test_a_program_on_two_volumes_of_a_real_cluster_is_traced_on_both(
    lab_cluster: Lab, cephfit: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """The second client reads more, and both read at the same time."""
    path = program(
        tmp_path,
        'count=$((40 + 30 * ${CEPHFIT_CLIENT#c})); dd if="$CEPHFIT_DEVICE" of=/dev/null bs=64k count=$count '
        "iflag=direct status=none; echo $count",
        prepare='dd if=/dev/urandom of="$CEPHFIT_DEVICE" bs=1M count=8 oflag=direct status=none',
        describe="""echo '{"name": "copy", "metric": "copies/s", "volume": "16M"}'""",
    )
    folder = tmp_path / "trace"
    argv = ("--target", f"lab:{lab_cluster.folder}", "--workload", f"program:{path}", "--seconds", "1")
    done = cephfit("trace", "workload", *argv, "--clients", "2", "-o", f"{folder}/", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["clients"] == {"c0": 40.0, "c1": 70.0}
    n_reads = []
    for trace in said["traces"]:
        assert trace["lost_events"] == 0
        profiled = cephfit("trace", "profile", str(folder / Path(trace["device"]).resolve().name), "--json")
        assert profiled.returncode == 0, profiled.stderr
        n_reads.append(sum(json.loads(profiled.stdout)["accesses"]["read"].values()))
    assert sorted(n_reads) == [40, 70]
