"""The lab's parts that need neither root nor Ceph."""

import os
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.errors import ClusterError, HostError, InputError, LackingError
from cephfit.core.protocols import Client
from cephfit.lab import machine, registry
from cephfit.lab.cluster import Lab
from cephfit.lab.daemons.osd_creation import OsdDisks
from cephfit.lab.daemons.processes import mentions
from cephfit.lab.devices.image_export import ImageAddress, mappings_of
from cephfit.lab.devices.throttle import IoMaxThrottle, Throttle
from cephfit.lab.lab_spec import LabSpec
from cephfit.lab.parts import _unready_digest, _unready_pgs
from cephfit.lab.workloads import pgbench, postgres
from cephfit.lab.workloads.pgbench import PgBench, PgBenchSpec, parse_tps
from cephfit.lab.workloads.postgres import PostgresServer

_NAMES = st.from_regex(r"[a-b][ab_.-]{0,3}", fullmatch=True)


@given(_NAMES, _NAMES)
def test_a_process_belongs_to_exactly_one_folder(name: str, other: str) -> None:
    """Daemons of labs with similar folder names are never confused."""
    argv = ["ceph-osd", "-c", f"/labs/{name}/ceph.conf", f"--pidfile=/labs/{name}/run/pid"]
    assert mentions(argv, Path(f"/labs/{name}"))
    assert mentions(argv, Path(f"/labs/{other}")) == (name == other)


def test_a_path_inside_a_json_argument_counts_and_one_below_another_root_does_not() -> None:
    assert mentions(['{"mountpoint": "/labs/a"}'], Path("/labs/a"))
    assert not mentions(["/mnt/labs/a/x"], Path("/labs/a"))


def test_the_spec_survives_its_journal(tmp_path: Path) -> None:
    record = registry.Record("x", "f-s-i-d", 20001, ready=True, devices={0: "/dev/loop7"}, spec=LabSpec())
    record.write(tmp_path)
    assert registry.Record.read(tmp_path) == record


def test_a_broken_journal_is_named(tmp_path: Path) -> None:
    (tmp_path / "lab.json").write_text('{"schema_version": 1, "na')
    with pytest.raises(InputError, match="not a lab's journal") as caught:
        registry.Record.read(tmp_path)
    assert caught.value.where == str(tmp_path / "lab.json")


@pytest.fixture
def empty_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "cephfit" / "labs"


def test_a_name_can_be_used_once(empty_root: Path) -> None:
    registry.claim("one", None)
    with pytest.raises(InputError, match="lab 'one' already exists") as caught:
        registry.claim("one", None)
    assert "cephfit lab down --name one" in caught.value.remedy


def test_an_unknown_name_is_answered_with_the_known_ones(empty_root: Path, tmp_path: Path) -> None:
    registry.claim("one", None)
    registry.claim("two", tmp_path / "elsewhere")
    assert registry.folder_of("two") == tmp_path / "elsewhere"
    assert registry.no_such_lab("three").remedy == "there are: one, two"


def test_a_path_is_no_name_of_a_lab(empty_root: Path, tmp_path: Path) -> None:
    """``nfs:lab:../x`` must not open what is next to the folder of the labs."""
    registry.claim("one", None)
    (empty_root.parent / "x").mkdir()
    assert registry.folder_of("../x") is None
    with pytest.raises(InputError, match=r"'../x' cannot be a lab's name") as caught:
        Lab.open("../x")
    assert "at most 32 letters" in caught.value.remedy
    assert "lab up" not in caught.value.remedy


def test_a_folder_with_something_in_it_is_refused(empty_root: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(InputError, match="the folder is not empty"):
        registry.claim("x", tmp_path / "full")
    assert registry.lab_names() == []


@pytest.mark.parametrize("folder", ["a" * 120, "with space", "with,comma"])
def test_a_folder_that_ceph_could_not_work_in_is_refused(empty_root: Path, tmp_path: Path, folder: str) -> None:
    with pytest.raises(InputError, match="short, plain path"):
        registry.claim("x", tmp_path / folder)


def test_a_stopped_labs_port_is_not_given_away(empty_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_PORTS", range(20000, 20002))
    place = registry.claim("one", None)
    with registry.port_choice() as (port,):
        registry.Record("one", "f", port, ready=False, devices={}, spec=LabSpec()).write(place)
    with registry.port_choice() as (other,):
        assert other != port


def test_two_processes_do_not_work_on_one_lab(tmp_path: Path) -> None:
    refused = pytest.raises(HostError, match=f"process {os.getpid()} is working on this lab")
    with registry.working_on(tmp_path), refused, registry.working_on(tmp_path):
        pass


def test_a_missing_program_comes_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_program", lambda name: None)
    with pytest.raises(HostError, match="ceph-osd, fio: not found") as caught:
        machine.require_programs("ceph-osd", "fio")
    assert caught.value.remedy.endswith("apt install ceph-osd fio")


def test_a_full_disk_is_reported_before_anything_is_created(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="GiB free, the lab needs 1024T"):
        machine.require_free_disk(tmp_path / "not" / "there", 1 << 50)


@pytest.fixture
def kernel_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A replacement for /proc/sys/fs."""
    monkeypatch.setattr(machine, "_KERNEL_LIMITS", tmp_path)
    (tmp_path / "aio-max-nr").write_text("65536\n")
    return tmp_path


def test_too_few_asynchronous_ios_for_the_osds_come_with_the_sysctl(kernel_limits: Path) -> None:
    (kernel_limits / "aio-nr").write_text("57344\n")
    machine.require_aio(4)  # the largest number that fits
    (kernel_limits / "aio-nr").write_text("57345\n")
    with pytest.raises(HostError, match="need 8192 asynchronous I/Os, and 8191 of this machine's 65536") as caught:
        machine.require_aio(4)
    assert "sysctl fs.aio-max-nr=1048576" in caught.value.remedy


def test_the_suggested_limit_is_sufficient(kernel_limits: Path) -> None:
    (kernel_limits / "aio-nr").write_text("1048576\n")
    (kernel_limits / "aio-max-nr").write_text("1048576\n")
    with pytest.raises(HostError) as caught:
        machine.require_aio(1)
    assert "sysctl fs.aio-max-nr=1050624" in caught.value.remedy


def test_a_machine_without_visible_limits_is_accepted(kernel_limits: Path) -> None:
    machine.require_aio(4)


PG = {"up": [0, 1], "acting": [0, 1], "state": "active+clean", "reported_epoch": "20"}


def test_a_pg_counts_only_if_it_reported_after_its_osd_came_up() -> None:
    assert _unready_pgs([PG], {0: 20}) == ""
    assert _unready_pgs([PG], {0: 21}) == "1 of 1 PGs have not reported yet"
    assert _unready_pgs([PG], {2: 99}) == ""
    assert _unready_pgs([PG, {**PG, "state": "peering"}], {}) == "1 of 2 PGs are peering"


def test_waiting_includes_the_monitors_which_learn_of_pgs_last() -> None:
    def status(checks: dict[str, object], **pgs: int) -> dict[str, object]:
        states = [{"state_name": name.replace("_", "+"), "count": count} for name, count in pgs.items()]
        return {"health": {"checks": checks}, "pgmap": {"pgs_by_state": states}}

    assert _unready_digest(status({}, active_clean=32), 32) == ""
    assert _unready_digest(status({}, unknown=32), 32) == "the monitors know 0 of 32 PGs as active+clean"
    assert _unready_digest(status({}, active_clean=64), 32) != "", "of pools that are gone"
    assert _unready_digest(status({}), 0) == ""
    down = {"summary": {"message": "1 osds down"}}
    assert _unready_digest(status({"OSD_DOWN": down}, active_clean=32), 32) == "OSD_DOWN (1 osds down)"
    assert _unready_digest(status({"OSD_DOWN": {**down, "muted": True}}, active_clean=32), 32) == ""


ADDRESS = ImageAddress("vms", "disk", Path("/c"), "admin", 1 << 30)
KRBD = '[{"id":"0","pool":"vms","namespace":"","name":"disk","snap":"-","device":"/dev/rbd0"}]'
NBD = '[{"id":1,"pool":"vms","namespace":"","image":"disk","snap":"-","device":"/dev/nbd0"}]'


@pytest.mark.parametrize(("listing", "device"), [(KRBD, "/dev/rbd0"), (NBD, "/dev/nbd0")])
def test_a_mapping_is_found_in_the_output_of_rbd(listing: str, device: str) -> None:
    assert [m["device"] for m in mappings_of(listing, ADDRESS)] == [device]
    assert mappings_of(listing.replace("vms", "other"), ADDRESS) == []
    assert mappings_of("", ADDRESS) == []


@pytest.mark.parametrize(
    "line",
    [
        "tps = 46.192156 (without initial connection time)",
        "tps = 45.9 (including connections establishing)\ntps = 46.192156 (excluding connections establishing)",
    ],
)
def test_tps_is_without_the_time_to_connect(line: str) -> None:
    assert parse_tps(f"latency average = 86.595 ms\n{line}\n") == 46.192156


def test_output_without_tps_is_an_error() -> None:
    with pytest.raises(ClusterError, match="no tps"):
        parse_tps("pgbench: error: connection to server was lost\n")


def test_pgbench_refuses_a_volume_that_its_database_would_fill() -> None:
    with pytest.raises(InputError, match="the volume has 512M"):
        PgBench(PgBenchSpec(scale=40)).prepare(Client("c0", {}, 512 << 20, Path("/dev/null")))


def test_pgbench_refuses_a_client_without_a_device() -> None:
    with pytest.raises(InputError, match="needs a block device"):
        PgBench().cleanup(Client("c0", {}, 1 << 30))


class Stuck(PostgresServer):
    """A server whose run fails, and whose file system cannot be unmounted afterwards."""

    removals: ClassVar[list[Path]] = []

    def format(self) -> None:
        pass

    def mount(self, memory_limit_nbytes: int) -> None:
        raise ClusterError("can't read superblock", where="mount")

    def remove(self) -> None:
        self.removals.append(self.disk)
        if len(self.removals) > 1:
            raise HostError("cannot remove the control group: Device or resource busy", where="cgroup")


@pytest.mark.parametrize("step", ["prepare", "run"])
def test_the_error_of_a_run_is_reported_before_that_of_the_cleanup(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pgbench, "PostgresServer", Stuck)
    monkeypatch.setattr(Stuck, "removals", [])
    client = Client("c0", {}, 8 << 30, Path("/dev/null"))
    said = "^mount: can't read superblock. Then cleanup failed: cgroup: cannot remove the control group"
    with pytest.raises(ClusterError, match=said):
        PgBench().prepare(client) if step == "prepare" else PgBench().run(client, 1, seed=1)
    assert len(Stuck.removals) == 2, "before and after"


def test_an_error_at_full_speed_is_reported_before_that_of_setting_limits(tmp_path: Path) -> None:
    class Lost(OsdDisks):
        """Its loop devices are missing when limits are set again."""

        def slow_down(self, throttle: Throttle) -> None:
            raise ClusterError("osd.0 has no disk")

    lost = Lost("x", tmp_path, LabSpec(n_hosts=0))
    said = "^fio: no room. Then cleanup failed: osd.0 has no disk$"
    with pytest.raises(HostError, match=said), lost.full_speed(IoMaxThrottle(tmp_path, tmp_path)):
        raise HostError("no room", where="fio")
    with (
        pytest.raises(ClusterError, match=r"^osd\.0 has no disk$"),
        lost.full_speed(IoMaxThrottle(tmp_path, tmp_path)),
    ):
        pass


def test_missing_programs_differ_from_temporary_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A verification retries after the latter."""
    with pytest.raises(HostError, match="failed with code 1") as passing:
        machine.run(["mount", str(tmp_path / "none")])
    assert not isinstance(passing.value, LackingError)
    monkeypatch.setattr(machine, "find_program", lambda name: None)
    with pytest.raises(LackingError, match="mount: not found"):
        machine.run(["mount"])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LackingError, match="a lab needs root"):
        machine.require_root("a lab")
    monkeypatch.setattr(postgres, "mounts", list)
    with pytest.raises(LackingError, match="memory controller"):
        postgres.MemoryGroup("none").create(1 << 20)
