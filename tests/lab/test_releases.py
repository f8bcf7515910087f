"""Labs of other Ceph releases than the machine's."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cephfit.ceph.environment.scopes import FILESTORE, OsdStore
from cephfit.ceph.options.option_history import RELEASES
from cephfit.core.errors import HostError, InputError
from cephfit.core.values.sample import State
from cephfit.lab.cluster import Lab
from cephfit.lab.daemons import ceph_programs
from cephfit.lab.daemons.bootstrap import options_of
from cephfit.lab.daemons.ceph_programs import CephPrograms, CephVersion
from cephfit.lab.daemons.osd_layout import require_store
from cephfit.lab.lab_lifecycle import what_is_left
from cephfit.lab.lab_spec import LabSpec
from cephfit.lab.lab_target import LabTarget
from cephfit.lab.registry import Record, labs_root
from cephfit.operations.recommended import version_of
from cephfit.results.store.sample_store import Store

REEF = CephVersion("18.2.7", "reef")
SWEEP = """
schema_version: 1
name: three
description: three cells
configurations:
  A: {why: the default}
measurement:
  {sizes: [4K], patterns: [read, randread, randwrite], clients: 1, volume_size: 16M, repeats: 1,
   ramp_seconds: 0.1, run_seconds: 0.5, ioengine: libaio, iodepth: 1, direct: true, cache: warm, seed: 1}
"""


@pytest.fixture
def own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user without labs and roots; returns the folder of roots, with two roots and a part of one."""
    for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    folder = ceph_programs.roots_folder()
    for name, n in (("reef", 3), ("tentacle", 2), ("tentacle.part", 1)):
        (folder / name / "usr").mkdir(parents=True)
        (folder / name / "usr" / "file").write_bytes(b"x" * (n << 20))
    return folder


def record_of(release: str) -> None:
    place = labs_root() / "one"
    place.mkdir(parents=True)
    Record("one", "fsid", 20000, ready=True, devices={}, spec=LabSpec(release=release)).write(place)


def test_since_quincy_the_capacity_of_mclock_is_the_limit_of_the_disk() -> None:
    spec = LabSpec()
    osd = options_of(spec, REEF)["osd"]
    assert osd["osd_mclock_max_capacity_iops_hdd"] == str(spec.limits["hdd"].iops)
    assert osd["osd_mclock_max_capacity_iops_ssd"] == str(spec.limits["ssd"].iops)
    assert osd["osd_mclock_skip_benchmark"] == "true"
    assert osd.items() >= spec.options["osd"].items()
    assert options_of(spec, CephVersion("16.2.15", "pacific")) == spec.options


def test_filestore_is_refused_since_reef_in_words() -> None:
    store = OsdStore(FILESTORE, "ext4")
    with pytest.raises(HostError, match=r"Ceph 18\.2\.7 .reef. has no FileStore"):
        require_store(store, lambda: REEF)
    require_store(OsdStore(), lambda: REEF)


def test_filestore_is_refused_before_the_release_is_installed(own_folders: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a lab needs root")
    ceph_programs.remove_roots()
    spec = LabSpec(release="reef", stores={"hdd": OsdStore(FILESTORE, "ext4")})
    with pytest.raises(HostError, match=r"Ceph 18\.2 .reef. has no FileStore: Reef .18\.2. removed it"):
        Lab.up("one", spec=spec)
    assert not list(own_folders.glob("reef*"))


def test_an_openstack_with_another_release_is_refused(own_folders: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a lab needs root")
    with pytest.raises(InputError, match="needs the machine's Ceph"):
        Lab.up("one", spec=LabSpec(release="reef"), openstack=True)


def test_clean_deletes_roots_and_parts_and_returns_their_sizes(own_folders: Path) -> None:
    freed = ceph_programs.remove_roots()
    assert sorted(freed) == ["reef", "tentacle"]
    assert 3 << 20 <= freed["reef"] < 4 << 20
    assert 3 << 20 <= freed["tentacle"] < 4 << 20
    assert [place.name for place in own_folders.iterdir()] == [".lock"]


def test_a_root_of_an_existing_lab_stays_and_so_do_all_others(own_folders: Path) -> None:
    record_of("tentacle")
    with pytest.raises(InputError, match="Ceph tentacle is in use by lab one"):
        ceph_programs.remove_roots()
    assert (own_folders / "reef").is_dir()
    assert ceph_programs.remove_roots("reef").keys() == {"reef"}
    assert (own_folders / "tentacle").is_dir()


def test_a_missing_root_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="the root of Ceph reef is missing") as caught:
        CephPrograms(tmp_path, tmp_path / "reef").run(["ceph-osd", "--version"])
    assert "lab start" in caught.value.remedy


def test_the_lab_of_an_older_cephfit_has_the_machines_release(tmp_path: Path) -> None:
    Record("one", "fsid", 20000, ready=True, devices={}, spec=LabSpec()).write(tmp_path)
    document = json.loads((tmp_path / "lab.json").read_text())
    del document["spec"]["release"]
    (tmp_path / "lab.json").write_text(json.dumps(document))
    record = Record.read(tmp_path)
    assert record is not None
    assert record.spec.release == ""


@pytest.mark.root
def test_a_program_of_a_root_sees_its_usr_and_leaves_no_mount(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    # The machine's own /usr and /etc serve as a root; /etc is replaced by one with a single file.
    (root / "usr").symlink_to("/usr")
    (root / "etc").mkdir()
    (root / "etc" / "mark").write_text("of the root")
    assert CephPrograms(tmp_path / "lab", root).run(["cat", "/etc/mark"]) == "of the root"
    assert CephPrograms(tmp_path / "lab", root).run(["pwd"]).strip() == "/"
    assert str(root) not in Path("/proc/self/mountinfo").read_text()
    assert not Path("/etc/mark").exists()


@pytest.mark.root
@pytest.mark.ceph
@pytest.mark.fio
@pytest.mark.slow
def test_a_reef_lab_measures_three_cells_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Makes the root of Reef, which needs a Debian mirror and takes minutes."""
    with TemporaryDirectory() as short:  # Ceph's sockets are in the lab's folder: its path may have 91 bytes
        monkeypatch.setenv("XDG_STATE_HOME", short)
        measure_three_cells_on("reef", tmp_path)


@pytest.mark.root
@pytest.mark.ceph
@pytest.mark.fio
def test_a_lab_of_the_newest_release_measures_three_cells_and_leaves_nothing(
    roots_of_the_user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs where this user has installed the release: `make newest-release` does that in minutes."""
    *_, newest = ceph_programs.SUITES
    if not (roots_of_the_user / newest).is_dir():
        pytest.skip(f"Ceph {newest} is not in {roots_of_the_user}")
    with TemporaryDirectory() as short:  # Ceph's sockets are in the lab's folder: its path may have 91 bytes
        monkeypatch.setenv("XDG_STATE_HOME", short)
        measure_three_cells_on(newest, tmp_path)


def measure_three_cells_on(release: str, tmp_path: Path) -> None:
    """Create a lab of a release, measure three cells on it, and remove it."""
    sweep = tmp_path / "three.yaml"
    sweep.write_text(SWEEP)

    def cephfit(*arguments: str) -> str:
        argv = [sys.executable, "-m", "cephfit.cli.main", *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    cephfit("lab", "up", "--release", release)
    lab = Lab.open()
    try:
        assert lab.version().name == release
        target = LabTarget(lab, for_change=False)
        try:
            facts = target.facts()
        finally:
            target.close()
        assert {o["capacity_iops"] for o in facts["mclock"]["osds"].values()} == {500, 3000}
        store = str(tmp_path / "results.sqlite")
        cephfit("sweep", "run", str(sweep), "--target", "lab", "--store", store)
        with Store.open(store) as opened:
            run = opened.run()
            samples = opened.samples(run.run_id)
        assert version_of(run.facts).startswith(f"{RELEASES[release]}.")
        assert [sample.state for sample in samples] == [State.OK] * 3
        if ceph_programs.root_of(release) is not None:  # not the machine's own
            with pytest.raises(InputError, match="lab default"):
                ceph_programs.remove_roots(release)
    finally:
        cephfit("lab", "down")
    assert not lab.folder.exists()
    assert what_is_left(lab.folder) == []


def test_the_manager_loads_its_modules_without_bcrypt(tmp_path: Path) -> None:
    """Current versions of bcrypt refuse a manager with several interpreters; Reef's modules all import it."""
    root, folder = tmp_path / "root", tmp_path / "lab"
    modules = root / "usr/share/ceph/mgr"
    (modules / "status").mkdir(parents=True)
    folder.mkdir()
    (modules / "mgr_util.py").write_text("import os\nimport bcrypt\nimport time\n")
    own = CephPrograms(folder, root).manager_modules()
    assert (own / "mgr_util.py").read_text() == "import os\nbcrypt = None\nimport time\n"
    assert (own / "status").readlink() == Path("/usr/share/ceph/mgr/status")  # in the manager's mount namespace
    (modules / "mgr_util.py").write_text("import os\n")
    assert CephPrograms(tmp_path / "other", root).manager_modules() == Path("/usr/share/ceph/mgr")


def test_programs_of_the_machine_start_in_the_root_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where osd_class_dir is relative, an OSD that starts elsewhere has no classes, and creates no images."""
    monkeypatch.chdir(tmp_path)
    assert CephPrograms(tmp_path, None).run(["pwd"]).strip() == "/"
