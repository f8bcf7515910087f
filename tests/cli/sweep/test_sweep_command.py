"""`cephfit sweep` as a process that is killed at random moments and started again."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_in_process import run_in_process
from planned_samples import ok_keys, whole_plan

from cephfit.cli.sweep.sweep_text import plan_document
from cephfit.core.errors import StoreError
from cephfit.core.values.measurement import ASSUMED_TIMES
from cephfit.core.values.sample import Sample, State
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import bundled_sweep, read_sweep
from cephfit.targets.simulated import SimulatedTarget

CEPHFIT = (sys.executable, "-m", "cephfit.cli.main")


def as_process(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CEPHFIT, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **environment},
    )


@pytest.fixture
def small_file(tmp_path: Path, small_text: str) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(small_text)
    return path


def samples_of(store: Path) -> list[Sample]:
    with Store.open(store) as opened:
        assert len(opened.runs()) == 1, "a killed run continues instead of beginning again"
        return opened.samples(opened.run().run_id)


def has_samples(store: Path) -> bool:
    """Return whether anything was measured; a kill may come before the first transaction."""
    try:
        with Store.open(store) as opened:
            return any(opened.samples(run.run_id) for run in opened.runs())
    except StoreError:
        return False


def kill_at_random_moments(arguments: list[object], n_kills: int, longest_seconds: float, seed: int) -> None:
    """Start and kill repeatedly, the last time after the first sample on any machine; then let it run."""
    dice = random.Random(seed)
    store = Path(str(arguments[-1]))
    for n_left in range(n_kills - 1, -1, -1):
        process = subprocess.Popen(
            [*CEPHFIT, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        while n_left == 0 and process.poll() is None and not has_samples(store):
            time.sleep(0.05)
        time.sleep(dice.uniform(0.05, longest_seconds))
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, f"it had ended before it could be killed: {errors}"
    done = as_process(*arguments)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow  # a kill with the real fio is in the quick tests
def test_sigkill_at_ten_random_moments_changes_nothing(small_file: Path, tmp_path: Path) -> None:
    """24 fio runs of 0.24 s; the store at the end equals that of an uninterrupted sweep, including all figures."""
    target = "sim:pace=0.2,unhealthy=0.1"
    broken, unbroken = tmp_path / "broken.sqlite", tmp_path / "unbroken.sqlite"
    kill_at_random_moments(
        ["sweep", "run", small_file, "--target", target, "--store", broken], 10, longest_seconds=1.1, seed=1
    )
    assert run_in_process("sweep", "run", small_file, "--target", target, "--store", unbroken).returncode == 0
    assert ok_keys(samples_of(broken)) == whole_plan(read_sweep(small_file))
    figures = [
        sorted((repr(s.key), s.state, repr(s.metrics)) for s in samples_of(store)) for store in (broken, unbroken)
    ]
    assert figures[0] == figures[1]


@pytest.mark.fio
def test_sigkill_with_the_real_fio_leaves_no_process_and_no_file(small_file: Path, tmp_path: Path) -> None:
    """Ten kills on a local file; fio dies with cephfit, and the volume is deleted at the end."""
    text = small_file.read_text()
    small_file.write_text(
        text[: text.index("configurations:")]
        + text[text.index("measurement:") :].replace("run_seconds: 1", "run_seconds: 0.2")
    )
    volume, store = tmp_path / "volume", tmp_path / "results.sqlite"
    arguments: list[object] = ["sweep", "run", small_file, "--target", f"local:{volume}", "--store", store]
    kill_at_random_moments(arguments, 10, longest_seconds=1.4, seed=2)
    assert ok_keys(samples_of(store)) == whole_plan(read_sweep(small_file))
    assert not volume.exists()
    assert not processes_with(str(volume))
    leftover = [p.name for p in tmp_path.iterdir() if p.name not in ("small.yaml", "state")]
    assert all(name.startswith("results.sqlite") for name in leftover), leftover


def processes_with(word: str) -> list[str]:
    """Return the processes with ``word`` in their command line or their open files."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            names = [(folder / "cmdline").read_text(), *(str(f.readlink()) for f in (folder / "fd").iterdir())]
        except OSError:
            continue
        if folder.name != str(os.getpid()) and any(word in name for name in names):
            found.append(folder.name)
    return found


def test_a_finished_run_is_not_continued_and_new_begins_another(small_file: Path, tmp_path: Path) -> None:
    store = tmp_path / "r.sqlite"
    run = ["sweep", "run", small_file, "--target", "sim", "--store", store, "--json"]
    first = json.loads(run_in_process(*run).stdout)
    assert first["finished"] is True
    assert first["simulated"] is True
    assert first["left"] == 0
    second = json.loads(run_in_process(*run, "--new").stdout)
    assert second["run"] != first["run"]
    status = json.loads(
        run_in_process("sweep", "status", "--store", store, "--run", first["run"], "--json").stdout
    )
    assert status == first
    assert [c["configuration"] for c in status["configurations"]] == ["A", "no-deferred", "blob"]
    assert all(c["ok"] == c["planned"] == 16 for c in status["configurations"])


def test_the_status_of_an_interrupted_run_shows_what_is_left(small_file: Path, tmp_path: Path) -> None:
    store = tmp_path / "r.sqlite"
    arguments = ["sweep", "run", str(small_file), "--target", "sim:pace=0.5", "--store", str(store)]
    process = subprocess.Popen([*CEPHFIT, *arguments], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.3)
        status = run_in_process("sweep", "status", "--store", store, "--json")
        if status.returncode == 0 and json.loads(status.stdout)["left"] < 48:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "run the same command to continue" in errors and "cephfit restore --target sim" in errors
    document = json.loads(run_in_process("sweep", "status", "--store", store, "--json").stdout)
    assert document["finished"] is False
    assert 0 < document["left"] < 48
    assert sum(c["ok"] + c["left"] for c in document["configurations"]) == 48
    assert "left" in run_in_process("sweep", "status", "--store", store).stdout


def test_an_interrupt_after_the_end_of_a_run_does_not_ask_for_another_one(
    small_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: SimulatedTarget) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SimulatedTarget, "reset", interrupted)
    store = tmp_path / "r.sqlite"
    ended = run_in_process("sweep", "run", small_file, "--target", "sim", "--store", store)
    assert ended.returncode == 130
    assert "the run is finished, but not all of its changes are undone" in ended.stderr
    assert "cephfit restore --target sim" in ended.stderr
    assert "run the same command" not in ended.stderr
    with Store.open(store) as opened:
        assert opened.run().finished


def test_plan_status_report_and_store_count_the_same_samples(small_file: Path, tmp_path: Path) -> None:
    """24 fio runs of two clients are 48 samples in every count."""
    store, table = tmp_path / "r.sqlite", tmp_path / "samples.csv"
    status = run_in_process("sweep", "run", small_file, "--target", "sim", "--store", store).stdout
    assert "48 samples planned (one per fio run and client)" in status
    counted = json.loads(run_in_process("sweep", "status", "--store", store, "--json").stdout)["configurations"]
    assert sum(c["planned"] for c in counted) == sum(c["ok"] for c in counted) == 48
    plan = run_in_process("sweep", "plan", small_file).stdout
    assert "24 fio runs, 48 samples (one per fio run and client)" in plan
    run_in_process("report", "--store", store, "-o", table)
    assert len(table.read_text().splitlines()) == 1 + 48
    with Store.open(store) as opened:
        assert len(opened.samples(opened.run().run_id)) == 48


def test_the_expected_time_of_a_simulation_is_its_real_time(small_file: Path, tmp_path: Path) -> None:
    store = tmp_path / "r.sqlite"
    run_in_process("sweep", "run", small_file, "--target", "sim", "--store", store)
    for asked in ((), ("--store", store)):
        document = json.loads(
            run_in_process("sweep", "plan", small_file, "--target", "sim", *asked, "--json").stdout
        )
        assert document["expected_seconds"] < 2
        assert document["expected_from"].startswith("simulated")
    document = json.loads(run_in_process("sweep", "plan", small_file, "--target", "sim:pace=1", "--json").stdout)
    assert document["expected_seconds"] > 24


def test_the_plan_names_settings_runs_and_time(small_file: Path) -> None:
    document = json.loads(run_in_process("sweep", "plan", small_file, "--json").stdout)
    assert document["runs"] == 24
    assert document["samples"] == 48
    assert document["expected_seconds"] > 24 * 1.2
    blob = document["configurations"][2]
    assert blob["settings"]["ceph"] == [{"scope": "osd", "key": "bluestore_max_blob_size_hdd", "value": "512K"}]
    assert len(document["order"]) == 6
    text = run_in_process("sweep", "plan", small_file).stdout
    assert "osd: bluestore_max_blob_size_hdd = 512K" in text
    assert "24 fio runs" in text


def test_the_plan_of_the_thesis_names_removed_options() -> None:
    document = json.loads(run_in_process("sweep", "plan", "meyer2017", "--target", "sim", "--json").stdout)
    reasons = {c["name"]: " ".join(c["unsupported"]) for c in document["configurations"] if c["unsupported"]}
    assert set("BCDEFG") <= set(reasons)
    assert "osd_op_threads" in reasons["B"]
    assert "osd_disk_threads" in reasons["E"]


def test_a_skipped_configuration_is_not_listed_as_without_effect() -> None:
    sweep = read_sweep(bundled_sweep("meyer2017"))
    document = plan_document(
        sweep,
        ASSUMED_TIMES,
        unsupported={"S": ("this Ceph has no such option",)},
        without_effect={"R": ("it is FileStore's",), "S": ("it is FileStore's",)},
    )
    assert [c["name"] for c in document["configurations"] if c["without_effect"]] == ["R"]


def test_the_status_shows_why_samples_do_not_count(small_file: Path, tmp_path: Path) -> None:
    small_file.write_text(small_file.read_text().replace("bluestore_prefer_deferred_size_hdd", "osd_op_threads"))
    store = tmp_path / "r.sqlite"
    assert run_in_process("sweep", "run", small_file, "--target", "sim", "--store", store).returncode == 0
    document = json.loads(run_in_process("sweep", "status", "--store", store, "--json").stdout)
    (why,) = document["not_ok"]
    assert (why["configuration"], why["state"], why["samples"]) == ("no-deferred", "skipped", 16)
    assert "osd_op_threads" in why["reason"]
    text = run_in_process("sweep", "status", "--store", store).stdout
    assert f"no-deferred, 16 samples skipped: {why['reason']}" in text


def test_the_status_names_the_cells_whose_samples_do_not_count(small_file: Path, tmp_path: Path) -> None:
    store = tmp_path / "r.sqlite"
    run_in_process("sweep", "run", small_file, "--target", "sim:refuse=no-deferred", "--store", store)
    document = json.loads(run_in_process("sweep", "status", "--store", store, "--json").stdout)
    row = next(row for row in document["not_ok"] if row["state"] == "failed")
    assert len(row["cells"]) == len(set(row["cells"])) > 1
    text = run_in_process("sweep", "status", "--store", store).stdout
    assert f"no-deferred, {row['samples']} samples failed ({', '.join(row['cells'][:4])}" in text
    assert row["reason"] in text


def test_a_missing_target_leaves_no_store(small_file: Path, tmp_path: Path) -> None:
    store = tmp_path / "r.sqlite"
    assert run_in_process("sweep", "run", small_file, "--target", "moon", "--store", store).returncode == 2
    assert not store.exists()


def test_the_bundled_sweeps_are_listed() -> None:
    names = [sweep["name"] for sweep in json.loads(run_in_process("sweep", "list", "--json").stdout)]
    assert {"quick", "meyer2017"} <= set(names)


def test_an_error_in_the_file_ends_with_2_and_its_line(small_file: Path, tmp_path: Path) -> None:
    small_file.write_text(small_file.read_text().replace("repeats", "repeat"))
    done = as_process("sweep", "run", small_file, "--target", "sim", "--store", tmp_path / "r.sqlite")
    assert done.returncode == 2
    assert f"{small_file}:14" in done.stderr
    assert "did you mean 'repeats'" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_fio_it_ends_with_2_and_names_the_package(small_file: Path, tmp_path: Path) -> None:
    small_file.write_text(
        small_file.read_text().replace("ceph: {osd: {bluestore_prefer_deferred_size_hdd: 0}}", "")
    )
    small_file.write_text(small_file.read_text().replace("ceph: {osd: {bluestore_max_blob_size_hdd: 512K}}", "{}"))
    empty = tmp_path / "bin"
    empty.mkdir()
    volume, store = tmp_path / "v", tmp_path / "r.sqlite"
    done = as_process("sweep", "run", small_file, "--target", f"local:{volume}", "--store", store, PATH=str(empty))
    assert done.returncode == 2
    assert "apt install fio" in done.stderr
    assert "Traceback" not in done.stderr
    assert not volume.exists()


@pytest.mark.root
def test_a_full_disk_ends_with_2_and_nothing_is_lost(small_file: Path, tmp_path: Path) -> None:
    """The store is on a disk of 1 MiB, most of which a file fills during the sweep."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    if subprocess.run(("mount", "-t", "tmpfs", "-o", "size=1m", "none", folder), check=False).returncode:
        pytest.skip("cannot mount a tmpfs")
    try:
        store, ballast = folder / "r.sqlite", folder / "ballast"
        run = ["sweep", "run", small_file, "--target", "sim:pace=0.2", "--store", store]
        process = subprocess.Popen([*CEPHFIT, *map(str, run)], stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (store.exists() and _n_samples(store) >= 4):
            time.sleep(0.1)
        fill_up(ballast)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 2, errors
        assert "Traceback" not in errors
        assert "no space left on the disk of the store" in errors
        before = ok_keys(samples_of(store))
        assert sum(before.values()) >= 4
        ballast.unlink()
        done = as_process(*run)
        assert done.returncode == 0, done.stderr
        assert ok_keys(samples_of(store)) == whole_plan(read_sweep(small_file))
    finally:
        subprocess.run(("umount", folder), check=True)


def fill_up(path: Path) -> None:
    try:
        with path.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))
    except OSError:
        return


def _n_samples(store: Path) -> int:
    """Read the store in this process: on a busy machine another process takes longer than the sweep."""
    try:
        return sum(s.state is State.OK for s in samples_of(store))
    except (AssertionError, StoreError):  # its run has not begun
        return 0
