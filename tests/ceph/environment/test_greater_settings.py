"""Values of disks' queues and of hosts on a real kernel: here and over SSH."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest
from greater_examples import greater, osd
from ssh_server import SSHD, ssh_server

from cephfit.ceph.admin.daemons import Daemon
from cephfit.ceph.environment.host_settings import HostSettings, OsdPlace, drop_page_caches, why_page_caches_stay
from cephfit.ceph.environment.kernel_values import HostFile, HostFiles
from cephfit.ceph.host import HostRefusedError
from cephfit.ceph.host_access import Hosts, SshAccess
from cephfit.core.journal import Journal
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Partition, Setting, Value
from cephfit.lab.devices import disks

SYSCTL = "net.ipv4.tcp_notsent_lowat"
"""Without consequences while a test runs."""


@pytest.fixture(scope="module")
def two_disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Kernel names of two unused loop devices."""
    folder = tmp_path_factory.mktemp("disks")
    attached = []
    for number in range(2):
        image = folder / f"{number}.img"
        disks.make_sparse(image, 16 * MIB)
        attached.append(disks.attach_loop(image))
    yield attached[0].name, attached[1].name
    for device in attached:
        disks.detach_loop(device)


@pytest.fixture(scope="module")
def over_ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Hosts]]:
    """This machine by its name in Ceph, through a real sshd."""
    if SSHD is None or os.geteuid() != 0:
        pytest.skip("needs root and sshd (Debian: openssh-server)")
    with ssh_server(tmp_path_factory.mktemp("sshd")) as server:
        config = server.client_config()
        yield lambda: Hosts(SshAccess(config=config, destinations={socket.gethostname(): "direct"}))


@pytest.fixture(params=["local", "ssh"])
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    made: Hosts = Hosts() if request.param == "local" else request.getfixturevalue("over_ssh")()
    yield made
    made.close()


def queue_value(disk: str, key: str) -> str:
    text = Path(f"/sys/block/{disk}/queue/{key}").read_text().strip()
    return text.partition("[")[2].partition("]")[0] if "[" in text else text


@pytest.mark.root
class TestHostSettings:
    @pytest.fixture
    def settings(self, hosts: Hosts, two_disks: tuple[str, str], tmp_path: Path) -> Callable[[], HostSettings]:
        """Called again it is the next process."""
        places = [osd(0, two_disks[0]), osd(1, two_disks[1])]
        return lambda: HostSettings(hosts, Journal(tmp_path / "journal.jsonl"), osds=lambda: places)

    def test_settings_are_applied_read_back_and_restored_by_the_next_process(
        self, settings: Callable[[], HostSettings], two_disks: tuple[str, str], tmp_path: Path
    ) -> None:
        sysctl = Path("/proc/sys") / SYSCTL.replace(".", "/")
        keys = ("scheduler", "nr_requests", "read_ahead_kb")
        before = sysctl.read_text(), [queue_value(disk, key) for disk in two_disks for key in keys]
        wanted = greater(
            osd_disk={"scheduler": "bfq", "nr_requests": 48, "read_ahead_kb": 512}, osd_host={SYSCTL: 4194304}
        )
        try:
            around = settings()
            assert [around.why_not(s) for s in wanted.settings] == [""] * 4
            around.apply(wanted, ())
            values, mismatches = around.read_back(wanted, ())
            assert mismatches == []
            host = socket.gethostname()
            assert values["greater/osd_disk/nr_requests = 48"] == {
                f"{host}:/sys/block/{disk}/queue/nr_requests": "48" for disk in two_disks
            }
            assert sysctl.read_text() == "4194304\n"
            assert [queue_value(disk, "scheduler") for disk in two_disks] == ["bfq", "bfq"]
        finally:
            settings().restore()
        assert (sysctl.read_text(), [queue_value(disk, key) for disk in two_disks for key in keys]) == before
        assert not Journal(tmp_path / "journal.jsonl").entries()

    def test_what_a_scheduler_resets_is_restored_too(
        self, settings: Callable[[], HostSettings], two_disks: tuple[str, str]
    ) -> None:
        """Whether Linux resets nr_requests on a change of the scheduler depends on its release."""
        disk = two_disks[0]
        requests = Path(f"/sys/block/{disk}/queue/nr_requests")
        at_first = requests.read_text()
        requests.write_text("77")
        before = queue_value(disk, "scheduler")
        other = "mq-deadline" if before != "mq-deadline" else "none"
        try:
            around = settings()
            around.apply(greater(osd_disk={"scheduler": other}), ())
            assert queue_value(disk, "scheduler") == other
            by_itself = queue_value(disk, "nr_requests")
            around.apply(greater(osd_disk={"scheduler": other, "nr_requests": 33}), ())
            assert queue_value(disk, "nr_requests") == "33"
            around.apply(greater(osd_disk={"scheduler": other}), ())
            assert queue_value(disk, "nr_requests") == by_itself, "not the last configuration's"
            settings().restore()
            assert (queue_value(disk, "scheduler"), queue_value(disk, "nr_requests")) == (before, "77")
        finally:
            requests.write_text(at_first)

    def test_a_mask_reaches_some_osds_only_and_beats_one_without(
        self, settings: Callable[[], HostSettings], two_disks: tuple[str, str]
    ) -> None:
        around = settings()
        wanted = greater(**{"osd_disk": {"read_ahead_kb": 64}, "osd_disk/class:ssd": {"read_ahead_kb": 256}})
        try:
            around.apply(wanted, ())
            assert [queue_value(disk, "read_ahead_kb") for disk in two_disks] == ["64", "256"]
        finally:
            around.restore()

    @pytest.mark.parametrize(
        ("scope", "key", "value", "why"),
        [
            ("osd_disk", "scheduler", "cfq", "the kernel offers no scheduler cfq; it has none, "),
            ("osd_disk", "no_such_value", 1, "has no queue value no_such_value (/sys/block/loop"),
            (
                "osd_host",
                "net.ipv4.no_such_key",
                1,
                "has no net.ipv4.no_such_key (/proc/sys/net/ipv4/no_such_key)",
            ),
            ("osd_disk/class:nvme", "scheduler", "none", "no running OSD is within osd_disk/class:nvme"),
            ("network", "mtu", 9000, "osd.0 does not report its network interface"),
            ("client_disk", "scheduler", "none", "fio opens the images by itself here"),
            ("nfs", "sync", False, "clients reach a Ceph cluster without nfs"),
            ("osd_store", "filesystem", "xfs", "only the OSDs of a lab are recreated"),
        ],
    )
    def test_unsupported_settings_have_a_reason_before_the_sweep(
        self, settings: Callable[[], HostSettings], scope: str, key: str, value: Value, why: str
    ) -> None:
        assert why in settings().why_not(Setting(Partition.GREATER, scope, key, value))

    def test_a_value_that_the_kernel_refuses_is_reported_and_the_rest_restored(
        self, settings: Callable[[], HostSettings], two_disks: tuple[str, str]
    ) -> None:
        around = settings()
        with pytest.raises(HostRefusedError, match="Invalid argument"):
            around.apply(greater(osd_disk={"scheduler": "none", "nr_requests": 100000}), ())
        around.restore()
        assert queue_value(two_disks[0], "nr_requests") == "128"

    def test_a_disk_that_is_gone_does_not_stand_in_the_way_of_the_rest(self, hosts: Hosts, tmp_path: Path) -> None:
        image = tmp_path / "short-lived.img"
        disks.make_sparse(image, 16 * MIB)
        device = disks.attach_loop(image)
        journal = Journal(tmp_path / "journal.jsonl")
        HostFiles(hosts, journal).apply(
            {HostFile(socket.gethostname(), f"/sys/block/{device.name}/queue/scheduler"): "bfq"}
        )
        Path(f"/sys/block/{device.name}/queue/scheduler").write_text("none")
        disks.detach_loop(device)
        HostFiles(hosts, journal).restore()
        assert not journal.entries()

    def test_filestore_hosts_drop_their_page_cache(self, hosts: Hosts, tmp_path: Path) -> None:
        place = OsdPlace(Daemon("osd", "0"), socket.gethostname(), ("sda",), (), "filestore")
        assert why_page_caches_stay([place], hosts) == ""
        drop_page_caches([place], hosts)


def test_a_host_without_a_way_to_it_is_a_reason(tmp_path: Path) -> None:
    places = [osd(0, "sda", host="elsewhere")]
    around = HostSettings(Hosts(), Journal(tmp_path / "journal"), osds=lambda: places)
    assert "need access to it" in around.why_not(Setting(Partition.GREATER, "osd_disk", "scheduler", "none"))
    filestore = OsdPlace(Daemon("osd", "0"), "elsewhere", ("sda",), (), "filestore")
    assert "no access to it" in why_page_caches_stay([filestore], Hosts())


def test_a_governor_is_refused_where_the_cpus_have_none(tmp_path: Path) -> None:
    around = HostSettings(Hosts(), Journal(tmp_path / "journal"), osds=lambda: [osd(0, "loop0")])
    why = around.why_not(Setting(Partition.GREATER, "osd_host", "cpu_governor", "no-such-governor"))
    if Path("/sys/devices/system/cpu/cpu0/cpufreq").exists():
        assert "the kernel offers no cpu_governor no-such-governor" in why
    else:
        assert "no cpufreq" in why


class Files(Hosts):
    """Hosts with given files."""

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__()
        self._files = files

    def named(self, name: str) -> Any:
        def read_all(paths: Sequence[PurePosixPath]) -> Mapping[PurePosixPath, str]:
            return {path: self._files[str(path)] for path in paths if str(path) in self._files}

        return SimpleNamespace(name=name, read_all=read_all)


def test_a_cpu_that_is_switched_off_has_no_governor_to_be_asked_for(tmp_path: Path) -> None:
    cpus = "/sys/devices/system/cpu"
    files = {f"{cpus}/present": "0-3\n", f"{cpus}/online": "0,2-3\n"}
    for cpu in (0, 2, 3):
        files[f"{cpus}/cpu{cpu}/cpufreq/scaling_governor"] = "schedutil\n"
        files[f"{cpus}/cpu{cpu}/cpufreq/scaling_available_governors"] = "performance schedutil\n"
    around = HostSettings(Files(files), Journal(tmp_path / "journal"), osds=lambda: [osd(0, "sda")])
    assert around.why_not(Setting(Partition.GREATER, "osd_host", "cpu_governor", "performance")) == ""
    values, _ = around.read_back(greater(osd_host={"cpu_governor": "performance"}), ())
    assert len(values["greater/osd_host/cpu_governor = performance"]) == 3


@pytest.mark.parametrize("key", ["net/ipv4/conf/eth0.100/rp_filter", "net.ipv4.conf.eth0/100.rp_filter"])
def test_a_sysctl_key_may_have_a_part_with_a_dot(key: str, tmp_path: Path) -> None:
    hosts = Files({"/proc/sys/net/ipv4/conf/eth0.100/rp_filter": "0\n"})
    around = HostSettings(hosts, Journal(tmp_path / "journal"), osds=lambda: [osd(0, "sda")])
    assert around.why_not(Setting(Partition.GREATER, "osd_host", key, 2)) == ""


def test_hosts_can_be_asked_for_what_they_are_not(tmp_path: Path) -> None:
    files = HostFiles(Hosts(), Journal(tmp_path / "journal"))
    absent = HostFile("localhost", "/proc/sys/no/such/key")
    assert files.values([absent]) == {}
    with pytest.raises(HostRefusedError, match="does not have this value"):
        files.apply({absent: "1"})
