"""Capture on a real loop device: the trace has every access of fio, and the kernel's settings are restored."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cephfit.core.errors import HostError, InputError
from cephfit.core.values.cells import Op
from cephfit.traces import profile_files
from cephfit.traces.capturing import blk_tracer
from cephfit.traces.capturing import capture as capture_module
from cephfit.traces.capturing import kernel_settings as kernel
from cephfit.traces.capturing.capture import CaptureReport, capture, capturing, keep_only

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]
needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")

FIO = ["fio", "--name=a", "--direct=1", "--ioengine=libaio", "--output-format=json"]


@pytest.fixture
def disk(loop_device: Callable[[int], Path]) -> Path:
    """A loop device of 64 MiB."""
    return loop_device(64 << 20)


def kernel_settings() -> dict[str, str]:
    """All kernel settings that a capture changes."""
    with kernel.mounted_tracefs() as root:
        paths = [root / name for name in ("current_tracer", "tracing_on", "trace_clock")]
        paths += sorted((root / "options").iterdir())
        paths += sorted(root.glob("per_cpu/cpu*/buffer_size_kb"))
        return {p.name if "per_cpu" not in str(p) else str(p): kernel._setting(p) for p in paths}


def is_mounted() -> bool:
    return "tracefs" in Path("/proc/mounts").read_text()


@pytest.fixture(params=["debugfs as it is", "debugfs mounted"])
def debugfs(request: pytest.FixtureRequest) -> Iterator[None]:
    """blktrace reads its channels there; a locked-down kernel shows the folder and refuses them."""
    place = Path("/sys/kernel/debug")
    mount = request.param == "debugfs mounted" and f" {place} debugfs " not in Path("/proc/mounts").read_text()
    if mount and subprocess.run(["mount", "-t", "debugfs", "none", place], check=False).returncode != 0:
        pytest.skip("debugfs cannot be mounted here")
    yield
    if mount:
        subprocess.run(["umount", place], check=True)


@needs_fio
@pytest.mark.usefixtures("debugfs")
def test_a_capture_has_exactly_the_accesses_that_fio_counts(disk: Path, tmp_path: Path) -> None:
    before, mounted = kernel_settings(), is_mounted()
    with capturing(disk, tmp_path / "run") as report:
        done = subprocess.run(
            [*FIO, f"--filename={disk}", "--rw=randrw", "--bsrange=4k-512k", "--iodepth=4", "--io_size=64m"],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    assert (kernel_settings(), is_mounted()) == (before, mounted)
    assert report.lost_events == 0
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    found = profile_files([tmp_path / "run"])
    assert sum(found.accesses[Op.READ].values()) == job["read"]["total_ios"]
    assert sum(found.accesses[Op.WRITE].values()) == job["write"]["total_ios"]
    assert found.description["nbytes"] == {op.value: job[op.value]["io_bytes"] for op in Op}
    assert found.description["percentiles"]["latency_us"]["all"]["n"] == found.n_accesses
    assert found.description["sources"][0]["captured_by"] == report.method
    assert found.description["lost_events"] == 0


@needs_fio
@pytest.mark.skipif(shutil.which("blkparse") is None, reason="blkparse is not installed")
def test_blkparse_reads_the_same_from_a_capture(disk: Path, tmp_path: Path) -> None:
    with capturing(disk, tmp_path / "run"):
        subprocess.run(
            [
                *FIO,
                f"--filename={disk}",
                "--rw=rw",
                "--bs=16k",
                "--io_size=8m",
                "--iodepth=16",
                "--iodepth_batch=16",
            ],
            capture_output=True,
            check=True,
            timeout=120,
        )
    content = b"".join(f.read_bytes() for f in sorted(tmp_path.glob("run.blktrace.*")))
    done = subprocess.run(["blkparse", "-i", "-"], input=content, capture_output=True, check=True, timeout=60)
    (tmp_path / "text").write_bytes(done.stdout)
    raw, text = profile_files([tmp_path / "run"]), profile_files([tmp_path / "text"])
    assert raw.n_accesses == (8 << 20) // (16 << 10)
    assert raw.accesses == text.accesses
    assert raw.description["events"] == text.description["events"]


def test_times_are_of_the_monotonic_clock(disk: Path, tmp_path: Path) -> None:
    with capturing(disk, tmp_path) as report:
        begin_ns = time.monotonic_ns()
        write_blocks(disk, 40)
        end_ns = time.monotonic_ns()
    blocks = [Path(file).read_bytes() for file in report.files]
    whole, within = (
        sum(map(len, of)) for of in (blocks, [blk_tracer.of_time(b, begin_ns, end_ns) for b in blocks])
    )
    assert within == whole > 0


@needs_fio
def test_only_the_measured_time_of_a_capture_is_kept(disk: Path, tmp_path: Path) -> None:
    job = [*FIO, f"--filename={disk}", "--rw=randread", "--bs=4k"]
    with capturing(disk, tmp_path) as report:
        subprocess.run([*job, "--number_ios=40"], check=True, stdout=subprocess.DEVNULL)
        begin_ns = time.time_ns()
        subprocess.run([*job, "--number_ios=7"], check=True, stdout=subprocess.DEVNULL)
        end_ns = time.time_ns()
        subprocess.run([*job, "--number_ios=30"], check=True, stdout=subprocess.DEVNULL)
    files = [Path(file) for file in report.files]
    assert profile_files(files).n_accesses >= 77  # fio may read once more to find the size
    keep_only(report, begin_ns, end_ns)
    assert profile_files(files).n_accesses in (7, 8)
    record = json.loads(capture_module.record_path(tmp_path, files[0].name.partition(".")[0]).read_text())
    assert record["seconds"] == pytest.approx((end_ns - begin_ns) / 1e9)
    assert record["nbytes"] == sum(file.stat().st_size for file in files)


def test_it_stops_after_its_seconds_and_a_quiet_device_has_no_events(disk: Path, tmp_path: Path) -> None:
    folder = tmp_path / "quiet"
    folder.mkdir()
    report = capture(disk, 0.5, folder)
    assert 0.5 <= report.seconds < 3
    assert report.files == ()
    assert json.loads((folder / f"{disk.name}.capture.json").read_text())["lost_events"] == 0


def test_a_capture_of_a_quiet_device_does_not_suggest_to_profile_it(disk: Path, tmp_path: Path) -> None:
    """Otherwise a user reads `next: cephfit trace profile ...` after 0 files, and gets an error from it."""
    arguments = ["trace", "capture", str(disk), "--seconds", "0.3", "-o", f"{tmp_path}/quiet/"]
    done = subprocess.run(
        [sys.executable, "-m", "cephfit.cli.main", *arguments], capture_output=True, text=True, check=True
    )
    assert "was not accessed during the capture" in done.stdout
    assert "next:" not in done.stdout


def test_changes_are_reverted_after_an_error_in_the_workload(disk: Path, tmp_path: Path) -> None:
    before = kernel_settings()
    with pytest.raises(RuntimeError), capturing(disk, tmp_path / "run"):
        raise RuntimeError("the workload failed")
    assert kernel_settings() == before


WAITING = """
import sys, time
from pathlib import Path
from cephfit.traces.capturing.capture import capturing
with capturing(Path(sys.argv[1]), Path(sys.argv[2])):
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_changes_are_reverted_after_a_signal(disk: Path, tmp_path: Path, signal_number: int) -> None:
    before, mounted = kernel_settings(), is_mounted()
    with subprocess.Popen(
        [sys.executable, "-c", WAITING, disk, tmp_path / "run"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal_number)
        process.wait(timeout=30)
    assert (kernel_settings(), is_mounted()) == (before, mounted)
    assert json.loads((tmp_path / "run.capture.json").read_text())["lost_events"] == 0


FAKE_BLKTRACE = """#!{python}
import signal, sys, time
from pathlib import Path
def end(*_):
    print("{summary}")
    sys.exit()
signal.signal(signal.SIGINT, end)
Path("{started}").touch()
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("summary", "lost"), [("  Total:  2100 events (dropped 7),  98 KiB data", 7), ("Segmentation fault", None)]
)
def test_an_interrupted_capture_states_what_blktrace_lost(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, summary: str, lost: int | None
) -> None:
    """Ctrl-C ends most captures. A record with 0 lost events would say that the trace is whole."""
    program, started = tmp_path / "blktrace", tmp_path / "started"
    program.write_text(FAKE_BLKTRACE.format(python=sys.executable, summary=summary, started=started))
    program.chmod(0o755)
    (tmp_path / "run").mkdir()

    def wait(*_: object) -> None:
        while not started.exists():
            time.sleep(0.01)

    monkeypatch.setattr(capture_module, "_wait_until_started", wait)
    monkeypatch.setattr(capture_module, "_DEBUGFS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(KeyboardInterrupt), capturing(disk, tmp_path / "run") as report:
        assert report.method == "blktrace"
        raise KeyboardInterrupt
    record = tmp_path / "run" / f"{disk.name}.capture.json"
    assert (json.loads(record.read_text())["lost_events"] if record.exists() else None) == lost


def test_a_name_with_brackets_is_no_pattern(disk: Path, tmp_path: Path) -> None:
    with capturing(disk, tmp_path / "run[1]") as report:
        write_blocks(disk, 5)
    assert written_blocks(tmp_path / "run[1]") == 5
    assert report.nbytes > 0
    with pytest.raises(InputError, match="a trace exists here already"):
        capture(disk, 0.1, tmp_path / "run[1]")


def test_a_kernel_without_a_switch_is_left_to_the_other_tracer(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel without CONFIG_BLK_DEV_IO_TRACE; the missing file must not end the command with a traceback."""
    monkeypatch.setattr(capture_module, "_DEBUGFS", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: "/bin/false")
    monkeypatch.setattr(capture_module, "_switch", lambda _: tmp_path / "none")
    with (
        pytest.raises(capture_module.BlktraceUnavailableError, match="the kernel has no"),
        capture_module.tracing(disk.name, tmp_path, "run"),
    ):
        pass


def test_a_killed_capture_is_undone_by_the_next_one(disk: Path, tmp_path: Path) -> None:
    before, mounted = kernel_settings(), is_mounted()
    with subprocess.Popen(
        [sys.executable, "-c", WAITING, disk, tmp_path / "killed"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with pytest.raises(HostError, match=f"process {process.pid} is capturing|being traced already"):
            capture(disk, 0.1, tmp_path / "second")
        process.kill()
    time.sleep(0.1)
    capture(disk, 0.1, tmp_path / "next")
    assert is_mounted() == mounted
    assert kernel_settings() == before


def test_a_tracer_in_use_is_not_changed(disk: Path, tmp_path: Path) -> None:
    with kernel.mounted_tracefs() as root:
        tracer = root / "current_tracer"
        tracer.write_text("blk")
        try:
            with pytest.raises(HostError, match="in use by the tracer 'blk'"):
                capture(disk, 0.1, tmp_path / "run")
            assert tracer.read_text().strip() == "blk"
        finally:
            tracer.write_text("nop")


def test_a_target_that_is_not_a_block_device(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, message in ((tmp_path / "none", "no such device"), (tmp_path / "file", "not a block device")):
        with pytest.raises(InputError, match=message):
            capture(path, 0.1, tmp_path / "run")


def test_an_older_trace_is_not_overwritten(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "run.blktrace.0").write_bytes(b"precious")
    with pytest.raises(InputError, match="a trace exists here already"):
        capture(disk, 0.1, tmp_path / "run")


@pytest.fixture
def disks(loop_device: Callable[[int], Path]) -> list[Path]:
    return [loop_device(64 << 20) for _ in range(4)]


def write_blocks(disk: Path, n: int) -> None:
    argv = ["dd", "if=/dev/zero", f"of={disk}", "bs=4k", f"count={n}", "oflag=direct"]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)


def written_blocks(capture_of: Path) -> int:
    found = profile_files([capture_of])
    assert found.description["nbytes"] == {"read": 0, "write": 4096 * found.n_accesses}
    return found.n_accesses


@pytest.mark.usefixtures("debugfs")
def test_captures_that_overlap_have_the_accesses_of_their_own_device_and_time(
    disks: list[Path], tmp_path: Path
) -> None:
    """The first begins first and ends first; the third begins and ends within the second."""
    before, mounted = kernel_settings(), is_mounted()
    first, second, third = (capturing(disk, tmp_path) for disk in disks[:3])
    expected = [0, 0, 0]

    def write_all(*counted: int) -> None:
        for i, disk in enumerate(disks):
            write_blocks(disk, 10 + i)
            if i in counted:
                expected[i] += 10 + i

    reports = [first.__enter__()]
    write_all(0)
    reports.append(second.__enter__())
    write_all(0, 1)
    first.__exit__(None, None, None)
    write_all(1)
    reports.append(third.__enter__())
    write_all(1, 2)
    third.__exit__(None, None, None)
    write_all(1)
    second.__exit__(None, None, None)
    assert (kernel_settings(), is_mounted()) == (before, mounted)
    assert [written_blocks(tmp_path / disk.name) for disk in disks[:3]] == expected
    assert [report.lost_events for report in reports] == [0, 0, 0]
    assert not list(tmp_path.glob(f"{disks[3].name}.*.*"))


@needs_fio
@pytest.mark.parametrize("n", [2, 4])
def test_captures_of_several_threads_have_exactly_the_accesses_that_fio_counts(
    n: int, disks: list[Path], tmp_path: Path
) -> None:
    before, mounted = kernel_settings(), is_mounted()

    def run(disk: Path) -> tuple[CaptureReport, dict[str, Any]]:
        job = [*FIO, f"--filename={disk}", "--rw=randrw", "--bsrange=4k-128k", "--iodepth=8"]
        with capturing(disk, tmp_path) as report:
            done = subprocess.run(
                [*job, f"--io_size={8 << disks.index(disk)}m"],
                capture_output=True,
                text=True,
                check=True,
                timeout=120,
            )
        return report, json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]

    with ThreadPoolExecutor(n) as pool:
        results = list(pool.map(run, disks[:n]))
    assert (kernel_settings(), is_mounted()) == (before, mounted)
    for disk, (report, job) in zip(disks, results, strict=False):
        found = profile_files([tmp_path / disk.name])
        assert {op: sum(found.accesses[op].values()) for op in Op} == {op: job[op.value]["total_ios"] for op in Op}
        assert found.description["nbytes"] == {op.value: job[op.value]["io_bytes"] for op in Op}
        assert found.description["percentiles"]["latency_us"]["all"]["n"] == found.n_accesses
        assert report.lost_events == 0


def test_events_that_do_not_fit_are_stated_by_each_capture(
    disks: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buffer is small, and is read once a second; the second capture begins after the loss and has none."""
    monkeypatch.setattr(blk_tracer, "_BUFFER_KB", 8)
    monkeypatch.setattr(blk_tracer, "_IDLE_SECONDS", 1.0)
    with capturing(disks[0], tmp_path) as first, capturing(disks[1], tmp_path) as second:
        if first.method != "tracefs":
            pytest.skip("blktrace works here, and has its own buffers")
        write_blocks(disks[0], 2000)
        with capturing(disks[2], tmp_path) as third:
            pass
    assert first.lost_events == second.lost_events > 0
    assert third.lost_events == 0
    assert profile_files([tmp_path / disks[0].name]).description["lost_events"] == first.lost_events


WAITING_ON_SEVERAL = """
import sys, time
from contextlib import ExitStack
from pathlib import Path
from cephfit.traces.capturing.capture import capturing
with ExitStack() as stack:
    for device in sys.argv[2:]:
        stack.enter_context(capturing(Path(device), Path(sys.argv[1])))
    print("ready", flush=True)
    time.sleep(60)
"""


def test_killed_captures_of_several_devices_are_undone_by_the_next_one(disks: list[Path], tmp_path: Path) -> None:
    before, mounted = kernel_settings(), is_mounted()
    (tmp_path / "killed").mkdir()
    argv = [sys.executable, "-c", WAITING_ON_SEVERAL, tmp_path / "killed", *disks[:3]]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with pytest.raises(HostError, match=f"process {process.pid} is capturing|being traced already"):
            capture(disks[1], 0.1, tmp_path / "refused")
        process.kill()
    time.sleep(0.1)
    with capturing(disks[0], tmp_path), capturing(disks[3], tmp_path):
        for disk in disks:
            write_blocks(disk, 20)
    assert written_blocks(tmp_path / disks[0].name) == written_blocks(tmp_path / disks[3].name) == 20
    switches = [Path("/sys/class/block") / disk.name / "trace" / "enable" for disk in disks]
    assert [switch.read_text().strip() for switch in switches] == ["0"] * 4
    assert (kernel_settings(), is_mounted()) == (before, mounted)


def test_a_device_is_not_captured_twice_at_once(disk: Path, tmp_path: Path) -> None:
    with capturing(disk, tmp_path / "first"):
        with pytest.raises(HostError, match="being traced already"):
            capture(disk, 0.1, tmp_path / "second")
        write_blocks(disk, 7)
    assert written_blocks(tmp_path / "first") == 7
