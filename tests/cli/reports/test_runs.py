"""The runs of a store: listed, shown, deleted, exported."""

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cephfit.cli.main import cephfit
from cephfit.core.errors import CephfitError
from cephfit.results.store.sample_store import Store

SWEEP = """
schema_version: 1
name: tiny
description: two configurations in one cell
measurement: {sizes: [4K], patterns: [randread], clients: 2, volume_size: 16M, repeats: 3, run_seconds: 1, seed: 1}
configurations:
  A: {}
  blob: {ceph: {osd: {bluestore_max_blob_size_hdd: 512K}}}
"""


def run(*arguments: object, input: str = "") -> Result:
    return CliRunner().invoke(cephfit, [str(one) for one in arguments], input=input)


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, CephfitError)
    return str(result.exception)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(SWEEP)
    return path


@pytest.fixture
def store(tmp_path: Path, sweep: Path) -> Path:
    """Two runs of 12 samples each."""
    path = tmp_path / "results.sqlite"
    for _ in range(2):
        result = run("sweep", "run", sweep, "--target", "sim", "--store", path, "--new")
        assert result.exit_code == 0, result.output
    return path


def ids(store: Path) -> list[str]:
    with Store.open(store) as opened:
        return [one.run_id for one in opened.runs()]


def test_the_list_counts_samples_by_state(store: Path) -> None:
    documents = json.loads(run("runs", "list", "--store", store, "--json").output)
    assert [one["run"] for one in documents] == ids(store)
    assert documents[0]["samples"] == {
        **{"ok": 12, "failed": 0, "invalid": 0, "skipped": 0},
        **{"planned": 12, "measured": 12},
    }
    assert (documents[0]["finished"], documents[0]["measured_by"], documents[0]["configurations"]) == (
        True,
        None,
        2,
    )
    text = run("runs", "list", "--store", store).output
    assert "12 of 12" in text and "finished" in text


def test_the_list_needs_none_of_the_packages_for_statistics(store: Path) -> None:
    """It would take half of its time to import them."""
    script = (
        "import sys\nfrom cephfit.cli.main import main\n"
        f"try: main(['runs', 'list', '--store', {str(store)!r}])\n"
        "except SystemExit as ended: print(ended.code)\n"
        "print(sorted({'numpy', 'scipy', 'alembic', 'optuna', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["0", "[]"]


def test_show_names_settings_versions_counts_and_what_is_saved(store: Path) -> None:
    with Store.open(store) as opened:
        opened.put_document(opened.run().run_id, "verification", {})
    text = run("runs", "show", "latest", "--store", store).output
    assert "ceph/osd/bluestore_max_blob_size_hdd = 512K" in text
    assert "versions.cephfit: " in text and "SIMULATED" in text
    assert "12 of 12 (one per fio run and client)" in text
    assert "saved with it: 1 verification" in text
    document = json.loads(run("runs", "show", "latest", "--store", store, "--json").output)
    assert [one["name"] for one in document["configurations"]] == ["A", "blob"]
    assert document["configurations"][1]["samples"]["ok"] == 6


def test_a_run_is_named_by_id_by_unique_prefix_or_latest(store: Path) -> None:
    newest, oldest = ids(store)
    for name, meant in ((newest, newest), ("latest", newest), (oldest[:-1], oldest)):
        assert json.loads(run("runs", "show", name, "--store", store, "--json").output)["run"] == meant
    assert "2 runs have an id that begins with 'tiny-'" in refused("runs", "show", "tiny-", "--store", store)
    assert "there is no run 'none'" in refused("runs", "show", "none", "--store", store)


def test_rm_asks_and_deletes_only_one_run(store: Path) -> None:
    newest, oldest = ids(store)
    answer = run("runs", "rm", newest, "--store", store, input="n\n")
    assert answer.exit_code == 1 and "nothing was deleted" in answer.output
    assert ids(store) == [newest, oldest]
    assert "--yes" in refused("runs", "rm", newest, "--store", store, "--json")
    script = [sys.executable, "-m", "cephfit.cli.main", "runs", "rm", newest, "--store", str(store)]
    done = subprocess.run(script, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--yes" in done.stderr
    answer = run("runs", "rm", newest, "--store", store, input="y\n")
    assert answer.exit_code == 0 and f"deleted run {newest}" in answer.output
    assert ids(store) == [oldest]
    with Store.open(store) as opened:
        assert len(opened.samples(oldest)) == 12
    assert run("runs", "rm", oldest, "--store", store, "--yes").exit_code == 0
    assert run("runs", "list", "--store", store).output.startswith("the store has no runs yet")


def test_a_run_that_a_process_measures_is_not_deleted_and_is_when_the_process_was_killed(
    sweep: Path, tmp_path: Path
) -> None:
    store = tmp_path / "busy.sqlite"
    program = [sys.executable, "-c", "from cephfit.cli.main import main; main()"]
    arguments = ["sweep", "run", str(sweep), "--target", "sim:pace=20", "--store", str(store)]
    process = subprocess.Popen([*program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        listed: list[dict[str, object]] = []
        while time.monotonic() < deadline and not (listed and listed[0]["measured_by"]):
            time.sleep(0.3)
            if store.exists():
                result = run("runs", "list", "--store", store, "--json")
                listed = json.loads(result.output) if result.exit_code == 0 else []
        assert listed[0]["measured_by"] == f"process {process.pid}"
        for force in ((), ("--force",)):
            text = refused("runs", "rm", "latest", "--store", store, "--yes", *force)
            assert f"process {process.pid} measures run tiny-" in text and "Ctrl-C" in text
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    assert run("runs", "rm", "latest", "--store", store, "--yes").exit_code == 0


def test_a_process_of_another_machine_cannot_be_seen_and_needs_force(store: Path) -> None:
    with Store.open(store) as opened:
        far = {"host": "elsewhere", "boot": "b", "pid_namespace": "n", "pid": 7, "started": 1}
        opened.put_document(opened.run().run_id, "measuring", far)
    text = refused("runs", "rm", "latest", "--store", store, "--yes")
    assert "process 7 on elsewhere" in text and "--force" in text
    assert run("runs", "rm", "latest", "--store", store, "--yes", "--force").exit_code == 0


def test_export_as_csv_has_the_samples_and_as_a_store_the_whole_run(store: Path, tmp_path: Path) -> None:
    table, alone = tmp_path / "samples.csv", tmp_path / "alone.sqlite"
    newest = ids(store)[0]
    assert run("runs", "export", "latest", "--store", store, "-o", table).exit_code == 0
    with table.open() as file:
        assert len(list(csv.DictReader(file))) == 12
    assert run("runs", "export", "latest", "--store", store, "-o", "-").output == table.read_text()
    text = refused("runs", "export", newest, "--store", store, "-o", tmp_path / "run.pdf")
    assert "cannot infer the format" in text and "use --format" in text
    assert run("runs", "export", newest, "--store", store, "-o", alone).exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir() if "alone" in p.name) == ["alone.sqlite"]
    with Store.open(store) as whole, Store.open(alone) as only:
        assert only.runs() == [whole.run(newest)]
        assert only.samples(newest) == whole.samples(newest)
        assert only.applied(newest) == whole.applied(newest)
    assert "would be lost" in refused("runs", "export", "latest", "--store", store, "-o", alone)
