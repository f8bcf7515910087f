"""Commands with closed streams, or ended by SIGTERM: no traceback, no lost samples."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_sweep import SWEEP

from cephfit.results.store.sample_store import Store

CEPHFIT = (sys.executable, "-m", "cephfit.cli.main")


@pytest.mark.parametrize(
    "closing",
    [
        ">&-",
        pytest.param("2>&-", marks=pytest.mark.slow),
        pytest.param("<&-", marks=pytest.mark.slow),
        "<&- >&- 2>&-",
    ],
)
def test_a_closed_stream_is_not_an_error(tmp_path: Path, closing: str) -> None:
    store = tmp_path / "s.sqlite"
    words = ("sweep", "list", "--json")
    done = subprocess.run(
        ("sh", "-c", f'"$@" {closing}', "sh", *CEPHFIT, *words), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (">&-" in closing.replace("2>&-", "")) == (done.stdout == "")
    words = ("sweep", "status", "--store", str(store))
    done = subprocess.run(
        ("sh", "-c", f'"$@" {closing}', "sh", *CEPHFIT, *words), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert ("no store of results here" in done.stderr) == ("2>&-" not in closing)


def begun(arguments: list[str], store: Path, *, n_runs: int = 1) -> "subprocess.Popen[str]":
    """A partly measured sweep, every run of which has samples."""
    process = subprocess.Popen([*CEPHFIT, *arguments], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if store.is_file() and store.stat().st_size:
            with Store.open(store, create=True) as opened:
                if sum(bool(opened.samples(run.run_id)) for run in opened.runs()) == n_runs:
                    return process
        time.sleep(0.1)
    process.kill()
    _, errors = process.communicate()
    raise AssertionError(f"nothing was measured: {errors}")


@pytest.mark.parametrize(
    "targets", [("sim:pace=0.5",), pytest.param(("sim:pace=0.5", "sim:pace=0.5,seed=2"), marks=pytest.mark.slow)]
)
def test_sigterm_ends_a_sweep_as_an_interrupt_does(tmp_path: Path, targets: tuple[str, ...]) -> None:
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    store = tmp_path / "s.sqlite"
    words = ["sweep", "run", str(tmp_path / "tiny.yaml"), "--store", str(store)]
    for target in targets:
        words += ["--target", target]
    process = begun(words, store, n_runs=len(targets))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert "run the same command to continue" in errors and f"cephfit restore --target {targets[-1]}" in errors
    assert "terminated; all completed samples are kept" in errors
    assert "Traceback" not in errors
    with Store.open(store) as opened:
        kept = {run.run_id: opened.samples(run.run_id) for run in opened.runs()}
    assert any(kept.values())
    done = subprocess.run([*CEPHFIT, *words, "--json"], capture_output=True, text=True, check=True, env=os.environ)
    said = json.loads(done.stdout)
    finished = said["runs"] if len(targets) > 1 else [said]
    assert {one["run"] for one in finished} == set(kept)
    with Store.open(store) as opened:
        for run_id, samples in kept.items():
            after = {repr(s.key): s for s in opened.samples(run_id)}
            assert len(after) == 16 and all(after[repr(s.key)] == s for s in samples)
