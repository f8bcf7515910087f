"""Options in the ceph.conf of hosts: every other line untouched, and all put back, also after a kill."""

import gzip
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from cluster_state import state_of
from foreign_lab import open_foreign, restart_program
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cephfit.cli.cluster_options import ClusterOptions
from cephfit.cli.target_choice import open_target
from cephfit.configuration import Configuration, Partition, Setting
from cephfit.errors import HostError, InputError
from cephfit.lab.cluster import Lab
from cephfit.lab.target import LabTarget
from cephfit.sweep.admin.daemons import Daemon
from cephfit.sweep.declaration.file import read_sweep
from cephfit.sweep.hosts.access import SshAccess
from cephfit.sweep.hosts.host import Host
from cephfit.sweep.hosts.local_host import LocalHost
from cephfit.sweep.hosts.ssh_host import SshHost
from cephfit.sweep.hosts.whole_files import read_bytes, remove_draft, replace
from cephfit.sweep.preview import Previews
from cephfit.sweep.settings.conf_files import sections_for
from cephfit.sweep.settings.conf_text import (
    TornBlockError,
    effective,
    merged,
    sections_of,
    with_block,
    without_block,
)
from cephfit.sweep.settings.setting_ways import Reach, SettingsWay
from cephfit.units import MIB

sys.path.insert(0, str(Path(__file__).parent.parent / "sweep"))
from ssh_server import SSHD, ssh_server

SAMPLE = Path("/usr/share/doc/ceph/sample.ceph.conf.gz")
CEPH_CONF = shutil.which("ceph-conf")
needs_ceph_conf = pytest.mark.skipif(CEPH_CONF is None, reason="needs ceph-conf (Debian: ceph-common)")

SITE = b"""# Written by the people of the site.
[global]
\tfsid = 5a3c1a4e-6d6c-4b0e-9a55-6b3a1b9d7f10
\tmon host = 10.0.0.1, 10.0.0.2
\tosd pool default size = 3 ; three copies
[osd]
\tosd max backfills = 1
\tosd_recovery_max_active = 2
[osd.1]
\tosd max backfills = 5
[mon]
\tmon_data_avail_warn = 10
[osd]
\tosd_recovery_max_active = 4
"""
OSDS = (
    Daemon("osd", "0", "hdd", {"host": "a", "root": "default"}),
    Daemon("osd", "1", "ssd", {"host": "a", "root": "default"}),
)
BOTH = (*OSDS, Daemon("mon", "a"))


def ceph(scope: str, key: str, value: str | int | float | bool) -> Setting:
    return Setting(Partition.CEPH, scope, key, value)


def asked(content: bytes, name: str, key: str, folder: Path) -> str:
    """What Ceph's own program reads in a file; empty where it finds nothing."""
    assert CEPH_CONF is not None
    file = folder / "asked.conf"
    file.write_bytes(content)
    argv = [CEPH_CONF, "-c", str(file), "--name", name, "--lookup", key]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "parse" not in done.stderr, done.stderr
    return done.stdout.removesuffix("\n")


section_names = st.sampled_from(["global", "osd", "mon", "client", "osd.0", "osd.1", "osd.12"])
option_names = st.sampled_from(["log_file", "pid_file", "crash_dir"])
"""Texts to Ceph, which takes any value of them."""
values = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1).map(str.strip)
sections = st.dictionaries(
    section_names,
    st.dictionaries(option_names, values.filter(lambda v: v and not v.endswith("\\")), min_size=1),
    min_size=1,
)
other_files = st.binary().filter(lambda content: b"cephfit" not in content)


@settings(max_examples=50, deadline=None)
@given(other_files, sections, sections)
@example(b"[osd]\nosd max backfills = 1", {"osd": {"log_file": "a"}}, {"osd": {"log_file": "b"}})
@example(b"[osd]\nlog file = a\\", {"osd": {"log_file": "a"}}, {"osd": {"log_file": "b"}})
@example(b"\xff\xfe\r\n\r\n", {"osd": {"log_file": "a"}}, {"osd": {"log_file": "b"}})
def test_every_other_byte_stays_and_taking_our_lines_out_gives_the_file_back(
    original: bytes, ours: dict[str, dict[str, str]], others: dict[str, dict[str, str]]
) -> None:
    first = with_block(original, ours, configuration="B")
    assert first.startswith(original)
    assert without_block(first) == original
    second = with_block(without_block(first), others, configuration="C")
    assert without_block(second) == original
    assert with_block(original, {}, configuration="A") == original


@settings(max_examples=50, deadline=None)
@given(other_files, sections, st.binary(max_size=30).filter(lambda content: b"cephfit" not in content))
def test_what_others_add_below_our_lines_stays(
    original: bytes, ours: dict[str, dict[str, str]], added: bytes
) -> None:
    assert without_block(with_block(original, ours, configuration="B") + added) == original + added


@settings(max_examples=50, deadline=None)
@given(sections)
def test_our_reader_reads_what_our_writer_writes(ours: dict[str, dict[str, str]]) -> None:
    assert sections_of(with_block(SITE, ours, configuration="B")) == merged(sections_of(SITE), ours)


@needs_ceph_conf
@settings(max_examples=6, deadline=None)
@given(ours=sections)
@example(ours={"osd": {"log_file": "a # b ; c \\ d \" e ' f"}, "osd.1": {"log_file": "'quoted'"}})
def test_ceph_reads_what_was_meant(
    tmp_path_factory: pytest.TempPathFactory, ours: dict[str, dict[str, str]]
) -> None:
    assume("$" not in str(ours))  # a variable, which Ceph replaces
    folder = tmp_path_factory.mktemp("asked")
    content = with_block(SITE, ours, configuration="B")
    for name in ("osd.0", "osd.1"):
        meant = effective(sections_of(content), ("global", "osd", name))
        for key in {key for options in ours.values() for key in options if key in meant}:
            assert asked(content, name, key, folder) == meant[key]


@needs_ceph_conf
def test_our_setting_wins_whatever_the_file_says(tmp_path: Path) -> None:
    wanted = (
        ceph("osd", "osd_max_backfills", 7),  # osd.1 has a section of its own with it
        ceph("osd/class:hdd", "osd_recovery_max_active", 9),  # such files know no masks
        ceph("global", "osd_pool_default_size", 2),
    )
    ours = sections_for(wanted, BOTH, sections_of(SITE))
    assert ours == {
        "global": {"osd_pool_default_size": "2"},
        "osd": {"osd_max_backfills": "7"},
        "osd.0": {"osd_recovery_max_active": "9"},
        "osd.1": {"osd_max_backfills": "7"},
    }
    content = with_block(SITE, ours, configuration="B")
    read = {
        (name, key): asked(content, name, key, tmp_path)
        for name in ("osd.0", "osd.1")
        for key in ("osd_max_backfills", "osd_recovery_max_active", "osd_pool_default_size")
    }
    assert read == {
        ("osd.0", "osd_max_backfills"): "7",
        ("osd.1", "osd_max_backfills"): "7",
        ("osd.0", "osd_recovery_max_active"): "9",
        ("osd.1", "osd_recovery_max_active"): "4",
        ("osd.0", "osd_pool_default_size"): "2",
        ("osd.1", "osd_pool_default_size"): "2",
    }


@needs_ceph_conf
@pytest.mark.skipif(not SAMPLE.exists(), reason="Debian's ceph package has the sample")
def test_the_sample_that_comes_with_ceph(tmp_path: Path) -> None:
    sample = gzip.decompress(SAMPLE.read_bytes())
    for name, options in sections_of(sample).items():
        for key, value in options.items():
            if "." in name and "$" not in value:
                assert asked(sample, name, key, tmp_path) == value
    content = with_block(sample, {"osd": {"osd_max_backfills": "7"}}, configuration="B")
    assert asked(content, "osd.0", "osd_max_backfills", tmp_path) == "7"
    assert without_block(content) == sample


@pytest.mark.parametrize("value", ["a\n[global]\nfsid = 0", "a\\", "größer", "a\x00b"])
def test_what_could_break_the_file_is_refused(value: str) -> None:
    with pytest.raises(InputError, match=r"cannot safely stand in a ceph\.conf"):
        with_block(SITE, {"osd": {"log_file": value}}, configuration="B")


def test_the_name_of_a_configuration_breaks_nothing_either() -> None:
    content = with_block(SITE, {"osd": {"log_file": "a"}}, configuration="größer\n[global]")
    assert content.isascii()
    assert sections_of(content) == merged(sections_of(SITE), {"osd": {"log_file": "a"}})


def test_our_lines_half_edited_away_are_not_guessed_at() -> None:
    content = with_block(SITE, {"osd": {"log_file": "a"}}, configuration="B")
    with pytest.raises(TornBlockError):
        without_block(content[: content.index(b"# <<< cephfit")])


@pytest.fixture(params=["local", pytest.param("ssh", marks=pytest.mark.root)])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    if request.param == "local":
        yield LocalHost()
        return
    if SSHD is None:
        pytest.skip("needs sshd (Debian: openssh-server)")
    with ssh_server(tmp_path_factory.mktemp("sshd")) as server:
        reached = SshHost("direct", config=server.client_config())
        yield reached
        reached.close()


def test_a_file_is_replaced_whole_with_its_owner_and_mode(host: Host, tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "ceph.conf", tmp_path / "ceph.conf"
    real.parent.mkdir()
    real.write_bytes(b"\xff old\r\n")
    real.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(real, 4321, 8765)
    link.symlink_to(real)
    before, content = real.stat(), bytes(range(256)) * 100
    replace(host, PurePosixPath(link), content)
    after = real.stat()
    assert read_bytes(host, PurePosixPath(link)) == real.read_bytes() == content
    assert link.is_symlink()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert after.st_ino != before.st_ino, "who has the old one open goes on reading it whole"
    assert sorted(p.name for p in real.parent.iterdir()) == ["ceph.conf"]
    (tmp_path / "real" / "ceph.conf.cephfit-new").write_text("half of it")
    remove_draft(host, PurePosixPath(link))
    assert sorted(p.name for p in real.parent.iterdir()) == ["ceph.conf"]
    with pytest.raises(HostError, match="No such file"):
        replace(host, PurePosixPath(tmp_path / "absent"), b"")


TUNED = Configuration(
    "tuned",
    (
        ceph("osd/class:ssd", "osd_op_num_shards", 3),
        ceph("osd/class:ssd", "osd_max_backfills", 3),
        ceph("mon", "mon_mgr_blocklist_interval", 9000),
        ceph("client", "rbd_cache", True),
    ),
)


@pytest.mark.ceph
@pytest.mark.root
@pytest.mark.fio
def test_daemons_run_with_what_stands_in_the_file(lab_cluster: Lab) -> None:
    before, original = state_of(lab_cluster), lab_cluster.conf.read_bytes()
    mode = stat.S_IMODE(lab_cluster.conf.stat().st_mode)
    target = LabTarget(lab_cluster, librbd=True, way=SettingsWay.CONF)
    try:
        applied = target.apply(TUNED, n_clients=1, volume_nbytes=16 * MIB, fill=False)
        assert applied.ok, applied.mismatches
        ssds = [osd for osd in lab_cluster.osd_ids() if lab_cluster.device_class(osd) == "ssd"]
        assert applied.restarted == tuple(f"osd.{osd}" for osd in ssds)
        assert applied.read_back["ceph/osd/class:ssd/osd_op_num_shards = 3"] == {f"osd.{o}": "3" for o in ssds}
        assert applied.read_back["ceph/mon/mon_mgr_blocklist_interval = 9000"] == {"mon.a": "9000.000000"}
        content = lab_cluster.conf.read_bytes()
        assert content.startswith(original)
        ours = sections_of(content[len(original) :])
        each = {"osd_op_num_shards": "3", "osd_max_backfills": "3"}
        assert ours == {"mon": {"mon_mgr_blocklist_interval": "9000"}, **{f"osd.{osd}": each for osd in ssds}}
        sources = state_of(lab_cluster)["osds"][ssds[0]]["diff"]
        assert sources["osd_max_backfills"]["file"] == 3
        again = target.apply(TUNED, n_clients=1, volume_nbytes=16 * MIB, fill=False)
        assert again.ok
        assert again.restarted == (), "what the file says already needs no restart"
        what = {undoing.what: undoing.then for undoing in target.undoings()}
        assert all(what[f"osd.{osd}"] == "restarted" for osd in ssds)
        assert "as it was" in what.values()
        target.reset()
    finally:
        target.close()
    assert lab_cluster.conf.read_bytes() == original
    assert stat.S_IMODE(lab_cluster.conf.stat().st_mode) == mode
    assert state_of(lab_cluster) == before


SWEEP = """
schema_version: 1
name: by-file
description: an option that would reach running daemons, too
configurations:
  A: {}
  B: {ceph: {osd: {osd_max_backfills: 3}}}
measurement: {sizes: [4K], patterns: [randwrite], clients: 1, volume_size: 16M, repeats: 1, ramp_seconds: 0.2,
  run_seconds: 0.5, ioengine: rbd, iodepth: 4, direct: true, cache: cold, seed: 1}
"""
VICTIM = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from foreign_lab import open_foreign
from cephfit.configuration import Configuration, Partition, Setting
from cephfit.lab.cluster import Lab
from cephfit.sweep.preview import Previews
from cephfit.sweep.settings.setting_ways import Reach, SettingsWay
lab = Lab.open(folder=Path(sys.argv[2]))
target = open_foreign(lab, restarts=sys.argv[3], reach=Reach(SettingsWay.CONF, str(lab.conf)))
shards = Setting(Partition.CEPH, "osd.0", "osd_op_num_shards", 3)
target.apply(Configuration("s", (shards,)), n_clients=1, volume_nbytes=1 << 24, fill=False)
"""


@pytest.mark.ceph
@pytest.mark.root
def test_a_kill_between_file_and_restart_is_undone_by_restore(lab_cluster: Lab, tmp_path: Path) -> None:
    before, original = state_of(lab_cluster), lab_cluster.conf.read_bytes()
    program = tmp_path / "hangs"
    program.write_text("#!/bin/sh\nsleep 600\n")
    program.chmod(0o755)
    tests = Path(__file__).resolve().parent.parent
    argv = [sys.executable, "-c", VICTIM, str(tests), str(lab_cluster.folder), str(program)]
    with subprocess.Popen(argv, start_new_session=True) as victim:
        while lab_cluster.conf.read_bytes() == original:
            assert victim.poll() is None
        os.killpg(victim.pid, signal.SIGKILL)
    edited = lab_cluster.conf.read_bytes() + b"# somebody was here meanwhile\n"
    lab_cluster.conf.write_bytes(edited)

    # Which way it was is not said again: the journal knows.
    restart = str(restart_program(lab_cluster, tmp_path))
    where = ["--target", "ceph:lab", "--conf", str(lab_cluster.conf), "--restarts", restart]
    restore = [sys.executable, "-m", "cephfit.cli.main", "restore", *where]
    listed = subprocess.run(restore, capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stderr
    assert "has lines of cephfit" in listed.stdout
    assert "osd.0" in listed.stdout
    assert lab_cluster.conf.read_bytes() == edited, "listing changes nothing"
    done = subprocess.run([*restore, "--apply"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "edited meanwhile" in done.stderr
    assert lab_cluster.conf.read_bytes() == original + b"# somebody was here meanwhile\n"
    lab_cluster.conf.write_bytes(original)
    assert state_of(lab_cluster) == before
    assert list(lab_cluster.folder.glob("*cephfit-new")) == []


@pytest.mark.ceph
@pytest.mark.root
def test_the_dry_run_shows_the_lines_and_what_speaks_against_them(lab_cluster: Lab, tmp_path: Path) -> None:
    def reasons(reach: Reach, restarts: str = "none") -> tuple[str, ...]:
        target = open_foreign(lab_cluster, for_change=False, reach=reach, restarts=restarts)
        try:
            return tuple(target.unsupported([TUNED]).get("tuned", ()))
        finally:
            target.close()

    by_conf = Reach(SettingsWay.CONF, str(lab_cluster.conf))
    (why,) = reasons(by_conf)
    assert "ceph.conf, which is read only when an OSD starts, and nobody here can restart OSDs" in why
    (why,) = reasons(Reach(SettingsWay.CONF, str(tmp_path / "absent.conf")))
    assert "cannot be had" in why
    other = tmp_path / "other.conf"
    other.write_bytes(SITE)
    (why,) = reasons(Reach(SettingsWay.CONF, str(other)))
    assert "is that of another cluster, 5a3c1a4e" in why
    program = str(restart_program(lab_cluster, tmp_path))
    assert reasons(by_conf, program) == ()

    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(SWEEP)
    target = open_target(
        f"ceph:lab,settings=conf,osd_conf={lab_cluster.conf}",
        for_change=False,
        cluster=ClusterOptions(conf=lab_cluster.conf, restarts=program),
    )
    try:
        assert isinstance(target, Previews)
        preview = target.preview(read_sweep(sweep))
    finally:
        target.close()
    n_osds = len(lab_cluster.osd_ids())
    assert preview.restarts == {"B": tuple(lab_cluster.osd_ids())}
    assert preview.n_restarts == 2 * n_osds, "there and back"
    assert [n for n in preview.notes if n.startswith("B adds to")] == [
        f"B adds to {socket.gethostname()}:{lab_cluster.conf}: [osd] osd_max_backfills = 3"
    ]


APPLY_FOR_EVER = """
import itertools, sys
from pathlib import Path
from cephfit.configuration import Configuration, Partition, Setting
from cephfit.lab.cluster import Lab
from cephfit.lab.target import LabTarget
from cephfit.sweep.settings.setting_ways import SettingsWay

def ceph(scope, key, value):
    return Setting(Partition.CEPH, scope, key, value)

way = SettingsWay(sys.argv[2])
target = LabTarget(Lab.open(folder=Path(sys.argv[1])), librbd=True, way=way)
tried = [
    Configuration("both", (ceph("osd/class:ssd", "osd_max_backfills", 3), ceph("osd.0", "osd_max_backfills", 2))),
    Configuration("one", (ceph("osd.0", "osd_scrub_sleep", 0.5),)),
    Configuration("A"),
]
print("ready", flush=True)
for configuration in itertools.cycle(tried):
    applied = target.apply(configuration, n_clients=1, volume_nbytes=16 << 20, fill=False)
    assert applied.ok, applied
"""


@pytest.mark.ceph
@pytest.mark.root
@pytest.mark.fio
@pytest.mark.slow
@pytest.mark.parametrize(("way", "seconds"), [("conf", 12.0), ("injectargs", 3.0)])
def test_whatever_a_kill_interrupts_restore_undoes(lab_cluster: Lab, way: str, seconds: float) -> None:
    before, original = state_of(lab_cluster), lab_cluster.conf.read_bytes()
    dice = random.Random(2017)
    for _ in range(5):
        argv = [sys.executable, "-c", APPLY_FOR_EVER, str(lab_cluster.folder), way]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as victim:
            assert victim.stdout is not None
            ready = victim.stdout.readline()
            time.sleep(dice.uniform(0.1, seconds))
            os.kill(victim.pid, signal.SIGKILL)
        assert (ready, victim.returncode) == ("ready\n", -signal.SIGKILL), "it was to be killed at work"
        restore = ["-m", "cephfit.cli.main", "restore", "--target", f"lab:{lab_cluster.folder}"]
        done = subprocess.run([sys.executable, *restore], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert lab_cluster.conf.read_bytes() == original
        assert state_of(lab_cluster) == before


@pytest.mark.ceph
@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(SSHD is None, reason="needs sshd (Debian: openssh-server)")
def test_files_of_other_hosts_are_reached_over_ssh(lab_cluster: Lab, tmp_path: Path) -> None:
    before, original = state_of(lab_cluster), lab_cluster.conf.read_bytes()
    shards = Configuration("shards", (ceph("osd.0", "osd_op_num_shards", 3),))
    (tmp_path / "sshd").mkdir()
    with ssh_server(tmp_path / "sshd") as server:
        target = open_foreign(
            lab_cluster,
            restarts=str(restart_program(lab_cluster, tmp_path)),
            ssh=SshAccess(config=server.client_config(), destinations={socket.gethostname(): "direct"}),
            reach=Reach(SettingsWay.CONF, str(lab_cluster.conf)),
        )
        try:
            applied = target.apply(shards, n_clients=1, volume_nbytes=16 * MIB, fill=False)
            assert applied.ok, applied.mismatches
            assert applied.restarted == ("osd.0",)
            assert lab_cluster.conf.read_bytes().startswith(original)
            assert "Accepted publickey" in server.log()
            target.reset()
        finally:
            target.close()
    assert lab_cluster.conf.read_bytes() == original
    assert state_of(lab_cluster) == before
