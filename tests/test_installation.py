"""The wheel in a clean environment: only what setup.cfg requires, no Ceph, no extras."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOT_SOURCE = (".*", "build", "dist", "*.egg-info", "__pycache__")
NO_ROOMS = ("benchmarks", "build", "dist", "docs", "site", "tests")
DATA = (".csv", ".css", ".gz", ".j2", ".json", ".yaml")
GOLDEN = ROOT / "tests/traces/golden"
BINDINGS = "apt install python3-rados python3-rbd"

pytestmark = [pytest.mark.takes(seconds=90), pytest.mark.xdist_group("installation")]

Cephfit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("distributions")
    source = shutil.copytree(
        ROOT, folder / "source", symlinks=True, ignore=shutil.ignore_patterns(*NOT_SOURCE, "benchmarks")
    )
    build = [sys.executable, "-m", "build", "--outdir", str(folder)]
    run([*build, str(source)])
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def cephfit(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Cephfit:
    """Runs the installed `cephfit` in an empty folder, as a user without files of cephfit."""
    folder = tmp_path_factory.mktemp("clean")
    run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")])
    python = folder / "venv/bin/python"
    run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", str(distributions[1])]
    )
    link_requirements(next((folder / "venv/lib").glob("python3.*/site-packages")))
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "PYTHON", "CEPH"))
    }
    environment |= {"HOME": str(folder), "COLUMNS": "200"}

    def cephfit(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [str(python), "-I", "-m", "cephfit.cli.main", *arguments]
        return subprocess.run(
            argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    return cephfit


def run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


UNDECLARED = {"jinja2": ("MarkupSafe",)}
"""What Debian's packages require without saying so in their metadata."""


def link_requirements(site: Path) -> None:
    """Link what a plain installation of cephfit requires, and nothing else, from this environment."""
    ahead, seen = ["cephfit"], set[str]()
    while ahead:
        distribution = metadata.distribution(name := ahead.pop())
        for requirement in (*(distribution.requires or ()), *UNDECLARED.get(name, ())):
            words, _, marker = requirement.partition(";")
            name = re.split(r"[^\w.-]", words.strip())[0].lower().replace("_", "-")
            if "extra" in marker or name in seen:
                continue
            seen.add(name)
            try:
                metadata.distribution(name)
            except metadata.PackageNotFoundError:
                assert marker, f"{name} is required, and not installed"
                continue
            ahead.append(name)
            for top in tops(metadata.distribution(name)):
                if top.exists() and not (site / top.name).exists():
                    (site / top.name).symlink_to(top)


def tops(distribution: metadata.Distribution) -> set[Path]:
    """The files and folders that a distribution has in site-packages."""
    names = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
    for name in (distribution.read_text("top_level.txt") or "").split():  # of Debian's, which list no files
        names |= {name, f"{name}.py"}
    return {Path(str(distribution.locate_file(name))) for name in names}


def test_data_files_are_in_the_wheel_and_docs_in_the_sdist(distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[0]) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(distributions[1]) as wheel:
        in_wheel = set(wheel.namelist())
    names_in_wheel = {Path(name).name for name in in_wheel}
    rooms = (folder for folder in ROOT.iterdir() if folder.is_dir() and not folder.match(".*"))
    data = [file for room in rooms if room.name not in NO_ROOMS for file in files(room) if file.suffix in DATA]
    assert len(data) > 50
    assert {file.name for file in data} <= names_in_wheel
    for example in files(ROOT / "docs/examples/profiles"):
        assert f"cephfit/example_profiles/{example.name}" in in_wheel
    assert {str(file.relative_to(ROOT)) for file in (*data, *files(ROOT / "docs"))} <= in_sdist
    assert not [name for name in (*in_sdist, *in_wheel) if name.startswith("tests/")]


def files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts]


def test_the_loop_on_the_simulated_cluster(cephfit: Cephfit) -> None:
    """The README's commands, one after the other."""
    for arguments in (
        ("sweep", "plan", "quick", "--target", "sim"),
        ("sweep", "run", "quick", "--target", "sim", "--store", "sim.sqlite"),
        ("sweep", "status", "--store", "sim.sqlite"),
        ("map", "example:pgbench", "--baselines", "sim.sqlite"),
        ("report", "--store", "sim.sqlite", "-o", "sim.html"),
        ("sweep", "run", "quick", "--target", "sim", "--target", "sim:noise=0.1", "--store", "two.sqlite"),
        ("compare", "--store", "two.sqlite"),
    ):
        done = cephfit(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)
    document = json.loads(cephfit("map", "example:pgbench", "--baselines", "sim.sqlite", "--json").stdout)
    assert document["profile"] == "pgbench"


@pytest.mark.slow
def test_a_trace_becomes_a_profile_that_can_be_mapped(cephfit: Cephfit) -> None:
    done = cephfit("trace", "profile", str(GOLDEN / "biosnoop-bcc-queued.txt"), "-o", "profile.json")
    assert done.returncode == 0, done.stderr
    done = cephfit("trace", "show", "profile.json")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "sweep plan one-pool --target ceph",
        "params tree --target ceph",
        "restore --target ceph",
        "pools show --target ceph",
    ],
)
def test_what_needs_ceph_says_which_packages_to_install(cephfit: Cephfit, command: str) -> None:
    done = cephfit(*command.split())
    assert done.returncode == 2
    assert done.stderr.startswith("cephfit: --target ceph: the Python module rados is not installed")
    assert BINDINGS in done.stderr


@pytest.mark.parametrize("command", ["lab status", "params tree"])
def test_without_a_lab_the_remedy_is_to_create_one(cephfit: Cephfit, command: str) -> None:
    done = cephfit(*command.split())
    assert done.returncode == 2
    assert "there is no lab 'default'" in done.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("trace plot example.trace -o plots.png", "plot"),
        (f"trace convert {GOLDEN / 'biosnoop-bcc-queued.txt'} -o out.parquet", "parquet"),
        ("trace profile s3://bucket/trace", "remote"),
        ("cloud check openstack:mine", "openstack"),
        ("cloud list", "openstack"),
        ("cloud clean quick-20260101T000000-0000", "openstack"),
        ("image remove cephfit-guest", "openstack"),
        ("sweep run quick --target openstack:mine", "openstack"),
        ("map example:pgbench --baselines postgresql+psycopg://host/results", "postgres"),
    ],
)
def test_what_needs_an_extra_names_it(cephfit: Cephfit, command: str, extra: str) -> None:
    done = cephfit(*command.split())
    assert done.returncode == 2
    assert f"pip install 'cephfit[{extra}]'" in done.stderr


def test_an_example_that_does_not_exist_names_those_that_do(cephfit: Cephfit) -> None:
    done = cephfit("map", "example:nosuch", "--baselines", "none.csv")
    assert done.returncode == 2
    assert "there are example:blogbench, example:dbench" in done.stderr
