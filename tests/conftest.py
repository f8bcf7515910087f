"""Fixtures of all tests: abilities of this machine, and one shared lab."""

import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from cephfit.ceph.environment.scopes import why_no_filestore
from cephfit.core.errors import CephfitError, HostError
from cephfit.lab.daemons.ceph_programs import SUITES, CephPrograms, chosen_release, roots_folder
from cephfit.lab.lab_backend import require_servers
from cephfit.lab.lab_spec import BACKENDS, LabSpec
from cephfit.lab.machine import find_program
from cephfit.lab.openstack.components import require_packages
from cephfit.lab.openstack.infrastructure import require_links
from cephfit.lab.workloads.postgres import find_binaries

if TYPE_CHECKING:
    from openstack.connection import Connection

    from cephfit.lab.cluster import Lab

sys.path.insert(0, str(Path(__file__).parent / "support"))

pytest_plugins = ["shared_fixtures"]

# Machines are noisy: no test fails because it was slow.
settings.register_profile("cephfit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("cephfit")

# A shell starts background programs with SIGINT ignored, which all programs of the tests would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_KEPT_LAB = "CEPHFIT_TEST_OPENSTACK_LAB"
_FOLDER = pytest.StashKey[Path]()
_ROOTS = pytest.StashKey[Path]()
_FAILED = pytest.StashKey[bool]()
_CEPH_PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "crushtool", "qemu-storage-daemon", "losetup")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--release",
        choices=tuple(SUITES),
        help="Ceph release of the shared lab; another than the machine's is installed in the user's cache first",
    )


@cache
def _lacking(marker: str) -> str:
    """Why tests of a marker cannot run here; empty if they can."""
    if marker == "root" and os.geteuid() != 0:
        return "needs root"
    if marker == "fio" and find_program("fio") is None:
        return "needs fio"
    if marker == "ceph":
        missing = [program for program in _CEPH_PROGRAMS if find_program(program) is None]
        return f"needs {', '.join(missing)}" if missing else ""
    try:
        if marker == "filestore":
            return why_no_filestore(CephPrograms(Path("/"), None).version().number)
        if marker == "backends":
            require_servers(BACKENDS)
        if marker == "postgres":
            find_binaries()
        if marker == "openstack":
            require_packages()
            require_links()
    except HostError as error:
        return str(error)
    return ""


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """With xdist, import the test files in another order in each process.

    pytest rewrites the assertions of a file when it is first imported, and keeps the bytecode for all processes.
    In the same order, all processes would rewrite every file at the same time.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in files[first:] + files[:first]:
        sys.path.insert(0, str(file.parent))
        with suppress(Exception, pytest.skip.Exception):  # pytest imports it again, and reports it
            importlib.import_module(file.stem)


_OF_DAEMONS = ("root", "ceph", "fio", "postgres", "backends")
_OF_CLUSTERS = ("tests/ceph/", "tests/targets/")
_OF_MACHINE = ("tests/lab/", "tests/traces/test_capture.py")


def pytest_itemcollected(item: pytest.Item) -> None:
    """With xdist's `--dist loadgroup`, let three processes run the tests with daemons, which mostly wait.

    One runs the tests of Ceph's administration and of the targets. One runs the other tests with a lab or with
    settings of the kernel that exist once, and one the rest. Tests on an OpenStack are made for labs in parallel.
    Other tests of a file share a process, and with it the fixtures of the file. So do all tests of traces, whose
    loops are compiled when they first run.
    """
    marks = {mark.name for mark in item.iter_markers()}
    if "openstack" in marks or "xdist_group" in marks:
        return
    group = "traces" if item.nodeid.startswith("tests/traces/") else item.path.stem
    if not marks.isdisjoint(_OF_DAEMONS):
        group = "daemons"
    if group == "daemons" and "backends" not in marks:
        if item.nodeid.startswith(_OF_CLUSTERS):
            group = "clusters"
        elif "ceph" in marks or item.nodeid.startswith(_OF_MACHINE):
            group = "machine"
    item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With xdist, begin with the longest groups and tests: parallel processes end at about the same time.

    Those with one process each come first. So the loops of traces are compiled when other tests need them.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_begins_early, reverse=True)


def _begins_early(item: pytest.Item) -> tuple[bool, float]:
    mark = item.get_closest_marker("takes")
    group = item.get_closest_marker("xdist_group")
    is_long = group is not None and group.args[0] in ("clusters", "machine", "daemons", "traces")
    return is_long, (float(mark.kwargs["seconds"]) if mark is not None else 0.0)


def pytest_runtest_setup(item: pytest.Item) -> None:
    reasons = [
        reason
        for marker in ("root", "ceph", "fio", "filestore", "postgres", "backends", "openstack")
        if item.get_closest_marker(marker)
        for reason in [_lacking(marker)]
        if reason
    ]
    if reasons:
        pytest.skip("; ".join(reasons))


# With `-n 2` (pytest-xdist) tests run in two parallel processes, each with separate labs. They share one state
# folder, so that their labs use different ports and networks.


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Put all files of the tests into one folder of this session.

    pytest's own numbered folders are renamed and deleted by any later session as soon as this one is interrupted,
    before its labs are removed: nothing finds the loop devices of a lab whose folder has another name.
    """
    if hasattr(config, "workerinput"):
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # sent by `timeout` and CI: labs are removed
    if (config.getoption("numprocesses", None) or 0) > 1 and os.environ.get(_KEPT_LAB):
        raise pytest.UsageError(f"one process alone can use the lab that {_KEPT_LAB} names: say -n 1")
    config.stash[_FOLDER] = folder = Path(tempfile.mkdtemp(prefix="cephfit-"))
    if config.option.basetemp is None:
        config.option.basetemp = folder / "tmp"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called by xdist before it starts a process."""
    node.workerinput["state"] = str(node.config.stash[_FOLDER] / "state")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_FAILED] = exitstatus == pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the remains of this session: xdist gives its processes 10 s after an interrupt, a lab takes longer.

    A second interrupt does not end this: it would leave devices behind. What failed tests wrote is kept.
    """
    folder = config.stash.get(_FOLDER, None)
    if folder is None:
        return
    from cephfit.lab import registry
    from cephfit.lab.cluster import Lab
    from cephfit.lab.daemons import processes

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    state, left = folder / "state", []
    if not os.environ.get(_KEPT_LAB):  # a test may have restarted services of that lab
        processes.kill(_started_under(state))  # such as a `lab up` of a test that has ended
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state))
        for name in registry.lab_names():
            try:
                Lab.remove(name)
            except (CephfitError, OSError) as error:
                left.append(f"{error}\n  XDG_STATE_HOME={state} cephfit lab down --name {name}")
    if left:
        print("Labs of the tests that could not be removed:", *left, sep="\n", file=sys.stderr)
    elif config.stash.get(_FAILED, False):
        print(f"What the tests wrote is kept: {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _started_under(state: Path) -> list[int]:
    """Processes that inherited this state folder."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and f"XDG_STATE_HOME={state}".encode() in (
                (process / "environ").read_bytes().split(b"\0")
            ):
                found.append(int(process.name))
    return [pid for pid in found if pid != os.getpid()]


@pytest.fixture(scope="session", autouse=True)
def state_home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state folder of the tests: labs of the user are neither visible nor changed."""
    shared = getattr(request.config, "workerinput", {}).get("state")
    folder = Path(shared) if shared else request.config.stash[_FOLDER] / "state"
    folder.mkdir(exist_ok=True)
    request.config.stash[_ROOTS] = roots_folder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield folder


@pytest.fixture
def roots_of_the_user(request: pytest.FixtureRequest, state_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the Ceph releases of the user's cache available to labs of this test; return their folder."""
    roots = request.config.stash[_ROOTS]
    monkeypatch.setenv("XDG_CACHE_HOME", str(roots.parent.parent))
    return roots


@pytest.fixture(scope="session")
def lab_cluster(
    request: pytest.FixtureRequest, state_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["Lab"]:
    """A running lab for the whole session, a ``cephfit.lab.cluster.Lab``; mark the test ``root`` and ``ceph``.

    With ``--release``, its daemons are of that release, from the user's cache.
    """
    from cephfit.lab.cluster import Lab

    name = f"tests-{os.getpid()}"
    spec = LabSpec()
    if release := request.config.getoption("--release"):
        spec = LabSpec(release=chosen_release(release))
        roots = roots_folder()
        roots.parent.mkdir(parents=True)
        request.config.stash[_ROOTS].mkdir(parents=True, exist_ok=True)
        roots.symlink_to(request.config.stash[_ROOTS])
    lab = Lab.up(name, folder=tmp_path_factory.mktemp("lab"), spec=spec)
    try:
        yield lab
    finally:
        lab.down()


@pytest.fixture(scope="session")
def openstack_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Lab"]:
    """A running lab with an OpenStack for the whole session; mark the test ``root``, ``ceph``, ``openstack``.

    One that is there already, named by its folder in ``CEPHFIT_TEST_OPENSTACK_LAB``, is used and kept: it takes
    minutes to make one.
    """
    from cephfit.lab.cluster import Lab

    kept = os.environ.get(_KEPT_LAB)
    if kept:
        yield Lab.open(folder=Path(kept))
        return
    lab = Lab.up(f"tests-os-{os.getpid()}", folder=tmp_path_factory.mktemp("oslab"), openstack=True)
    try:
        yield lab
    finally:
        lab.down()


@pytest.fixture
def cloud_admin(openstack_lab: "Lab", monkeypatch: pytest.MonkeyPatch) -> "Iterator[Connection]":
    """The administrator of the lab's OpenStack."""
    from cephfit.lab.openstack.cloud_resources import connect

    assert openstack_lab.cloud is not None
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(openstack_lab.cloud.layout.clouds_yaml))
    cloud = connect(openstack_lab.cloud.layout)
    yield cloud
    cloud.close()


@pytest.fixture
def cloud_user(cloud_admin: "Connection", openstack_lab: "Lab") -> "Iterator[Connection]":
    """An ordinary user of another project, which is restored at the end."""
    from live_cloud import everything, until

    from cephfit.lab.openstack.cloud_resources import connect

    assert openstack_lab.cloud is not None
    cloud = connect(openstack_lab.cloud.layout, openstack_lab.cloud.layout.user_cloud)
    before = everything(cloud)
    yield cloud
    until(lambda: everything(cloud) == before)  # Heat lists a stack for a moment after its deletion
    cloud.close()
