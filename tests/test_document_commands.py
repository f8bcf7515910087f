"""The commands of the documents run: the tutorial as it is written, and all others that need no cluster."""

import gzip
import re
import shlex
import shutil
import subprocess
import sys
import time
import zlib
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from document_commands import commands_of
from fleets import fleet, scrape

from cephfit.cli.main import cephfit
from cephfit.core.values.image_io import IoCounts

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TUTORIAL = (DOCS / "tutorial.md").read_text()
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
OMITTED = "..."
"""In the outputs of the tutorial: any text."""
ELSEWHERE = {
    "docs/tutorial.md": "tests/test_document_commands.py",
    "docs/how-to-capacity.md": "tests/cli/fleets/test_capacity_document.py",
    "docs/how-to-import.md": "tests/cli/sweep/test_import.py",
    "docs/how-to-pools.md": "tests/cli/cluster/test_how_to_pools.py",
    "docs/how-to-serve.md": "tests/server/test_how_to_serve.py",
    "docs/evidence.md": "tests/mapper/assessment/test_evaluation_data.py",
}
"""Documents whose commands another test runs."""
NEEDS_MORE = {
    r"lab\b": "starts, changes or shows a lab",
    r"cloud\b": "needs an OpenStack",
    r"image\b": "builds an image, or needs an OpenStack",
    r"pools\b": "needs a cluster",
    r"restore\b": "needs a cluster",
    r"trace capture\b": "needs root and a disk",
    r"trace workload\b": "runs a program on a disk",
    r"evaluate\b": "runs programs on a disk",
    r"sweep run micro": "the simulation has no files: tests/measure/micro",
    r"report .*operations.html": "needs runs of the engine micro: tests/results/test_operations.py",
    r"shared-volume\b": "needs a cluster: tests/measure/test_shared_volume_live.py",
    r"compare .*upgrade.html": "needs runs of several releases: tests/cli/reports/test_compare_upgrade.py",
    r"compare$": "needs the sweep on several back ends",
    r"sweep run next.yaml": "needs an open answer: tests/cli/predict/test_map_further.py",
    r"map .* --with-run NEW": "needs the run before: tests/cli/predict/test_map_further.py",
    r"sweep (plan|run) combined.yaml": "needs two improvements: tests/cli/predict/test_map_further.py",
}
"""Commands that do not run here, with the reason."""
OF_A_LAB = ("back-ends", "case-filesystems", "case-schedulers", "client-distance", "meyer2017-filestore", "mclock")
"""Sweeps of settings without effect in the simulation: they are planned instead of run."""
OTHER_TARGETS = re.compile(r"(ceph|openstack|iscsi|nfs|swift|local)\b")
TUNE = """\
schema_version: 1
name: tune
design:
  kind: optimise
  trials: 2
  seed: 1
  settings: {ceph: {osd: {bluestore_max_blob_size: {low: 64K, high: 1M, scale: log}}}}
measurement: {sizes: [4K], clients: 1, volume_size: 64M, repeats: 2, run_seconds: 1, seed: 1}
"""
PLACEHOLDERS = {
    "CONFIGURATION": "ssd",
    "STORE": "results.sqlite",
    "FILE": "file.yaml",
    "my-sweep.yaml": "file.yaml",
    "FILE...": "trace/guest.blktrace.0",
    "quick-20261121": "latest",
    "quick-20261121T101500-3f9a": "latest",
}
"""Words of documents, and what stands for them here."""
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md"))
    if commands_of(path)
)
LONG = ("docs/designs.md", "docs/loads.md", "docs/releases.md")
"""Documents with many sweeps."""

pytestmark = [pytest.mark.takes(seconds=40), pytest.mark.xdist_group("documents")]


def call(words: list[str]) -> str:
    result = CliRunner().invoke(cephfit, words, input="y\n")
    says_no = words[0] == "capacity" and result.exit_code == 1 and isinstance(result.exception, SystemExit)
    assert result.exit_code == 0 or says_no, f"{shlex.join(words)}: {result.output}{result.exception}"
    return result.stdout


def reason_not_to_run(words: tuple[str, ...]) -> str:
    """Why a command of a document does not run here; empty if it does."""
    line = " ".join(words)
    for pattern, reason in NEEDS_MORE.items():
        if re.match(pattern, line):
            return reason
    if any(option == "--target" and OTHER_TARGETS.match(value) for option, value in pairwise(words)):
        return "needs another target than a lab or a simulation"
    if "--workload" in words:
        return "runs a program on a disk"
    return ""


def as_simulated(words: tuple[str, ...]) -> list[str]:
    """The command with simulated clusters in place of labs, and without placeholders."""
    found = [PLACEHOLDERS.get(word, word) for word in words]
    if words[:2] == ("sweep", "run") and words[2] in OF_A_LAB:
        found[1] = "plan"
    if words[0] == "trace" and words[-1] == "FILE":
        found[-1] = "trace.tsv"
    for place, option in enumerate(words[:-1]):
        if option == "--target" and words[place + 1].startswith("lab"):
            _, _, name = words[place + 1].partition(":")
            found[place + 1] = f"sim:seed={zlib.crc32(name.encode())}" if name else "sim"
    return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the commands read: a measured sweep, profiles, traces, scrapes, folders of the repository."""
    folder = tmp_path_factory.mktemp("prepared")
    for name in ("docs", "benchmarks", "sweeps"):
        (folder / name).symlink_to(ROOT / name)
    rows = [f"{20_000 * n}\tdisk\t{n % 2}\t{4096 * (n * 7919 % 99_991)}\t4096\t{15_000}\n" for n in range(3000)]
    (folder / "random.tsv").write_text("".join(rows))
    (folder / "trace.tsv").write_text("".join(row.rpartition("\t")[0] + "\n" for row in rows))
    (folder / "file.yaml").write_text(_block(DOCS / "sweep-file.md", "yaml"))
    (folder / "tune.yaml").write_text(TUNE)
    _write_scrapes(folder)
    columns = "time:us,disk,op:0/1,offset:bytes,length:bytes,latency:us,sep=tab"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        call(["trace", "profile", "random.tsv", "--columns", columns, "--name", "myapp", "-o", "profile.json"])
        call(["sweep", "run", "quick", "--target", "sim", "--store", "results.sqlite"])
        call(["map", "profile.json", "--baselines", "results.sqlite"])
    for name in ("myapp", "batch", "workload"):
        shutil.copy(folder / "profile.json", folder / f"{name}.json")
    for name in ("own", "laptop"):
        shutil.copy(folder / "results.sqlite", folder / f"{name}.sqlite")
    shutil.copy(DOCS / "examples" / "profiles" / "postmark.json", folder)
    recorded = (ROOT / "tests" / "traces" / "golden" / "guest.blktrace.0").read_bytes()
    for name in ("trace", "pgbench"):
        (folder / name).mkdir()
        (folder / name / "guest.blktrace.0").write_bytes(recorded)
    (folder / "trace" / "c0.events.gz").write_bytes(gzip.compress(recorded))
    return folder


def _block(document: Path, language: str) -> str:
    """The first code block of a language in a document."""
    found = re.search(rf"^```{language}\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def _write_trace(folder: Path) -> None:
    """Run the program of the tutorial, which writes a trace."""
    (folder / "make_trace.py").write_text(_block(DOCS / "tutorial.md", "python"))
    subprocess.run([sys.executable, "make_trace.py"], cwd=folder, check=True)


def _write_scrapes(folder: Path) -> None:
    """Write two scrapes of a fleet, ten minutes apart."""
    images = {image.name: image.counts for image in fleet().images}
    (folder / "1.prom").write_text(scrape(dict.fromkeys(images, IoCounts(0, 0, 0, 0, 0, 0))))
    (folder / "2.prom").write_text(scrape(images))


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LONG else [])
        for name in DOCUMENTS
        if name not in ELSEWHERE
    ],
)
def test_commands_of_the_documents_run(
    document: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(prepared, tmp_path / "folder", symlinks=True))
    for words in commands_of(ROOT / document):
        if not reason_not_to_run(words):
            call(as_simulated(words))


def test_what_does_not_run_here_has_a_reason_that_is_used() -> None:
    for document, test in ELSEWHERE.items():
        assert Path(document).name in (ROOT / test).read_text()
    lines = [" ".join(words) for name in DOCUMENTS for words in commands_of(ROOT / name)]
    assert [pattern for pattern in NEEDS_MORE if not any(re.match(pattern, line) for line in lines)] == []
    named = re.findall(r"tests/\S+", " ".join(NEEDS_MORE.values()))
    assert [test for test in named if not (ROOT / test).exists()] == []


def test_the_tutorial_runs_and_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _write_trace(tmp_path)
    n_commands, begin = 0, time.monotonic()
    for block in CONSOLE.findall(TUTORIAL):
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            program, *words = shlex.split(command)
            if program == "cephfit":
                printed = call(words)
                wanted = ".*".join(re.escape(part) for part in shown.split(OMITTED))
                assert re.fullmatch(wanted, printed, re.DOTALL), f"{command}:\n{printed}"
                n_commands += 1
            else:
                assert command == "python3 make_trace.py"
    assert n_commands == len(commands_of(DOCS / "tutorial.md")) >= 7
    with capsys.disabled():
        print(f"\nthe tutorial's {n_commands} commands took {time.monotonic() - begin:.1f} s")
