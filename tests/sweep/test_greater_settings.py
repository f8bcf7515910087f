"""Settings around Ceph on real kernels: disks' queues, sysctl keys, network interfaces; here and over SSH."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssh_server import SSHD, ssh_server

from cephfit.configuration import Configuration, Partition, Setting, Value
from cephfit.errors import InputError
from cephfit.lab import disks
from cephfit.sweep.admin.daemons import Daemon
from cephfit.sweep.declaration.file import parse_sweep
from cephfit.sweep.greater.emulation import Emulation, Emulations, parse_qdisc
from cephfit.sweep.greater.host_files import HostFile, HostFiles
from cephfit.sweep.greater.host_settings import HostSettings
from cephfit.sweep.greater.osd_places import OsdPlace
from cephfit.sweep.greater.osd_store import OsdStore, store_of
from cephfit.sweep.greater.page_cache import drop_page_caches, why_page_caches_stay
from cephfit.sweep.hosts.access import Hosts, SshAccess
from cephfit.sweep.hosts.host import Finished, HostRefusedError
from cephfit.sweep.hosts.local_host import LocalHost
from cephfit.sweep.journal import Journal
from cephfit.units import MIB

SYSCTL = "net.ipv4.tcp_notsent_lowat"
"""Of no consequence for anybody while a test runs."""


def greater(**scopes: dict[str, Value]) -> Configuration:
    settings = [Setting(Partition.GREATER, s, key, v) for s, keys in scopes.items() for key, v in keys.items()]
    return Configuration("tried", tuple(sorted(settings)))


def osd(number: int, disk: str, *, host: str = socket.gethostname(), interfaces: tuple[str, ...] = ()) -> OsdPlace:
    daemon = Daemon("osd", str(number), "hdd" if number == 0 else "ssd", {"host": f"crush{number}"})
    return OsdPlace(daemon, host, (disk,), interfaces, "bluestore")


@pytest.fixture(scope="module")
def two_disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Kernel names of two loop devices that nobody uses."""
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
    """This machine by the name that Ceph would call it, reached through a real sshd."""
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


# On the kernel.


@pytest.mark.root
class TestHostSettings:
    @pytest.fixture
    def settings(self, hosts: Hosts, two_disks: tuple[str, str], tmp_path: Path) -> Callable[[], HostSettings]:
        """Called again it is the next process."""
        places = [osd(0, two_disks[0]), osd(1, two_disks[1])]
        return lambda: HostSettings(hosts, Journal(tmp_path / "journal.jsonl"), osds=lambda: places)

    def test_they_are_made_read_back_and_put_back_by_the_next_process(
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

    def test_what_a_scheduler_resets_is_put_back_too(
        self, settings: Callable[[], HostSettings], two_disks: tuple[str, str]
    ) -> None:
        """Whether Linux sets nr_requests anew when a scheduler takes a queue over depends on its release."""
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
            ("network", "mtu", 9000, "osd.0 does not say which network interface it uses"),
            ("client_disk", "scheduler", "none", "fio opens the images by itself here"),
            ("osd_store", "filesystem", "xfs", "only a cluster that cephfit made (a lab) is remade"),
        ],
    )
    def test_what_cannot_be_done_is_said_beforehand_with_the_reason(
        self, settings: Callable[[], HostSettings], scope: str, key: str, value: Value, why: str
    ) -> None:
        assert why in settings().why_not(Setting(Partition.GREATER, scope, key, value))

    def test_a_value_that_the_kernel_refuses_is_told_and_the_rest_put_back(
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
    assert "need a way to it" in around.why_not(Setting(Partition.GREATER, "osd_disk", "scheduler", "none"))
    filestore = OsdPlace(Daemon("osd", "0"), "elsewhere", ("sda",), (), "filestore")
    assert "no way to it" in why_page_caches_stay([filestore], Hosts())


def test_a_governor_is_refused_where_the_cpus_have_none(tmp_path: Path) -> None:
    around = HostSettings(Hosts(), Journal(tmp_path / "journal"), osds=lambda: [osd(0, "loop0")])
    why = around.why_not(Setting(Partition.GREATER, "osd_host", "cpu_governor", "no-such-governor"))
    if Path("/sys/devices/system/cpu/cpu0/cpufreq").exists():
        assert "the kernel offers no cpu_governor no-such-governor" in why
    else:
        assert "no cpufreq" in why


# The network, in a network namespace of its own.


class NamespaceHost(LocalHost):
    """This machine, its programs run in a network namespace."""

    def run(self, argv: Sequence[str], *, seconds: float = 30.0, stdin: str = "") -> Finished:
        return super().run(["ip", "netns", "exec", self.name, *argv], seconds=seconds, stdin=stdin)


@contextmanager
def namespace() -> Iterator[NamespaceHost]:
    name = f"cephfit-test-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        host = NamespaceHost(name)
        host.run(["ip", "link", "set", "lo", "up"])
        yield host
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


class OneHost(Hosts):
    def __init__(self, host: LocalHost) -> None:
        super().__init__()
        self._host = host

    def named(self, name: str) -> LocalHost:
        return self._host


@pytest.mark.root
@pytest.mark.skipif(shutil.which("tc") is None, reason="needs tc (Debian: iproute2)")
class TestEmulations:
    @pytest.fixture
    def host(self) -> Iterator[NamespaceHost]:
        with namespace() as host:
            yield host

    def test_a_rate_is_limited_changed_and_taken_off(self, host: NamespaceHost, tmp_path: Path) -> None:
        before = host.run(["tc", "-j", "qdisc", "show", "dev", "lo"]).stdout
        emulations = Emulations(OneHost(host), Journal(tmp_path / "journal"))
        for rate in (100.0, 40.0):
            wanted = Emulation(rate_mbit=rate)
            assert emulations.why_not("h", "lo", wanted) == ""
            emulations.apply({("h", "lo"): wanted})
            assert emulations.now("h", "lo").same(wanted)
        Emulations(OneHost(host), Journal(tmp_path / "journal")).restore()
        assert host.run(["tc", "-j", "qdisc", "show", "dev", "lo"]).stdout == before

    def test_a_limited_interface_is_as_slow_as_was_asked_for(self, host: NamespaceHost, tmp_path: Path) -> None:
        """4 MB over 40 Mbit/s take 0.8 s, the bucket's first 64 KiB aside."""
        emulations = Emulations(OneHost(host), Journal(tmp_path / "journal"))
        emulations.apply({("h", "lo"): Emulation(rate_mbit=40)})
        code = (
            "import socket, threading, time\n"
            "s = socket.create_server(('127.0.0.1', 0)); n = 4_000_000\n"
            "def send():\n"
            "    c, _ = s.accept(); c.sendall(bytes(n)); c.close()\n"
            "threading.Thread(target=send).start()\n"
            "r = socket.create_connection(s.getsockname()); began = time.monotonic(); got = 0\n"
            "while part := r.recv(1 << 16): got += len(part)\n"
            "print(got, time.monotonic() - began)\n"
        )
        nbytes, seconds = host.run(["python3", "-c", code]).stdout.split()
        assert (nbytes, float(seconds) > 0.7) == ("4000000", True)

    def test_delays_are_made_or_the_kernel_is_the_reason(self, host: NamespaceHost, tmp_path: Path) -> None:
        wanted = Emulation(delay_ms=5, jitter_ms=1, loss_pct=0.1, rate_mbit=100)
        emulations = Emulations(OneHost(host), Journal(tmp_path / "journal"))
        why = emulations.why_not("h", "lo", wanted)
        if why:
            assert "the kernel of h cannot do it (sch_netem)" in why
            with pytest.raises(HostRefusedError, match="qdisc"):
                emulations.apply({("h", "lo"): wanted})
        else:
            emulations.apply({("h", "lo"): wanted})
            assert emulations.now("h", "lo").same(wanted)
        emulations.restore()

    def test_a_discipline_of_somebody_else_is_not_touched(self, host: NamespaceHost, tmp_path: Path) -> None:
        theirs = ["tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb"]
        assert host.run(theirs).code == 0
        emulations = Emulations(OneHost(host), Journal(tmp_path / "journal"))
        assert "has a htb of its own" in emulations.why_not("h", "lo", Emulation(rate_mbit=10))
        emulations.restore()
        assert '"htb"' in host.run(["tc", "-j", "qdisc", "show", "dev", "lo"]).stdout

    def test_a_masked_rate_and_an_mtu_through_the_settings(self, host: NamespaceHost, tmp_path: Path) -> None:
        places = [osd(0, "loop0", host="h", interfaces=("lo",))]
        around = HostSettings(OneHost(host), Journal(tmp_path / "journal"), osds=lambda: places)
        wanted = greater(**{"network/class:hdd": {"rate_mbit": 50}})
        around.apply(wanted, ())
        assert around.read_back(wanted, ()) == ({"greater/network/class:hdd/rate_mbit = 50": {"h:lo": 50.0}}, [])
        around.apply(Configuration("A"), ())
        assert around.read_back(wanted, ())[0] == {"greater/network/class:hdd/rate_mbit = 50": {"h:lo": 0.0}}
        around.restore()


def test_what_tc_says_of_netem_is_understood() -> None:
    """As iproute2 prints it: seconds, fractions, bytes per second."""
    text = (
        '[{"kind":"netem","handle":"cef:","root":true,"refcnt":2,"options":{"limit":100000,'
        '"delay":{"delay":0.05,"jitter":0.01,"correlation":0},"loss-random":{"loss":0.001,"correlation":0},'
        '"rate":{"rate":12500000,"packetoverhead":0,"cellsize":0,"celloverhead":0},"ecn":false,"gap":0}}]'
    )
    found, kind, ours = parse_qdisc(text)
    assert found.same(Emulation(delay_ms=50, jitter_ms=10, loss_pct=0.1, rate_mbit=100))
    assert (kind, ours) == ("netem", True)


@given(st.floats(0, 1000), st.floats(0, 1000), st.floats(0, 99), st.floats(0, 1e5))
def test_an_emulation_has_a_discipline_exactly_where_it_does_something(
    delay: float, jitter: float, loss: float, rate: float
) -> None:
    if jitter and not delay:
        with pytest.raises(InputError, match="jitter_ms without delay_ms"):
            Emulation(delay, jitter, loss, rate)
        return
    emulation = Emulation(delay, jitter, loss, rate)
    assert bool(emulation.kind) == bool(delay or loss or rate)
    assert emulation.same(emulation)


# Stores of OSDs.


@pytest.mark.parametrize(
    ("settings", "store"),
    [
        ({}, OsdStore()),
        ({"filesystem": "btrfs"}, OsdStore("filestore", "btrfs")),
        ({"objectstore": "filestore"}, OsdStore("filestore", "xfs")),
        ({"journal": "ssd"}, OsdStore("filestore", "xfs", journal="ssd")),
        ({"db": "ssd"}, OsdStore(db="ssd")),
        ({"filesystem": "ext4", "mount_options": "noatime"}, OsdStore("filestore", "ext4", "", "noatime")),
    ],
)
def test_a_store_is_what_the_settings_say_and_the_usual_for_the_rest(
    settings: dict[str, Value], store: OsdStore
) -> None:
    assert store_of(settings, OsdStore()) == store


def test_another_file_system_does_not_inherit_options_of_the_first() -> None:
    first = OsdStore("filestore", "xfs", "-i size=1024", "noatime", "ssd")
    assert store_of({"mount_options": "inode64"}, first) == OsdStore(
        "filestore", "xfs", "-i size=1024", "inode64", "ssd"
    )
    assert store_of({"filesystem": "btrfs"}, first) == OsdStore("filestore", "btrfs")
    assert store_of({"objectstore": "bluestore"}, first) == OsdStore()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"filesystem": "zfs"}, "FileStore cannot be put on zfs"),
        ({"objectstore": "bluestore", "filesystem": "xfs"}, "filesystem is of filestore"),
        ({"filesystem": "xfs", "db": "ssd"}, "db is of bluestore"),
        ({"objectstore": "memstore"}, "'memstore' is no object store"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Value], why: str) -> None:
    with pytest.raises(InputError, match=why):
        store_of(settings, OsdStore())


# In sweep files.

SWEEP = """\
schema_version: 1
name: try
configurations:
  x:
    greater: {GREATER}
measurement: {sizes: [4K], patterns: [read], clients: 1, volume_size: 64M, repeats: 1, run_seconds: 1,
  ramp_seconds: 0, ioengine: psync, iodepth: 1, direct: true, cache: cold, seed: 1}
"""


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("{osd_disc: {scheduler: none}}", "'osd_disc' is no scope", "osd_disk"),
        ("{network: {delay: 1}}", "network has no key 'delay'", "delay_ms"),
        ("{network: {delay_ms: fast}}", "delay_ms must be a number, not 'fast'", ""),
        ("{network/host:a: {rate_mbit: .inf}}", "rate_mbit must be a number, not inf", ""),
        ("{network: {delay_ms: true}}", "delay_ms must be a number, not True", ""),
        ("{network: {jitter_ms: -1}}", "jitter_ms cannot be -1", ""),
        ("{network: {loss_pct: 100}}", "loss_pct cannot be 100", ""),
        ("{network: {mtu: 1500.5}}", "mtu must be a whole number from 68 on, not 1500.5", ""),
        ("{osd_store: {filesystem: zfs}}", "filesystem cannot be 'zfs': choose from xfs, btrfs, ext4", ""),
        ("{osd_store: {file_system: xfs}}", "osd_store has no key 'file_system'", "filesystem"),
        ("{osd_host: {tcp_rmem: 1}}", "'tcp_rmem' is no sysctl key", ""),
        ("{client_disk/class:hdd: {scheduler: none}}", "client_disk takes no mask", ""),
        ("{osd_disk/hdd: {scheduler: none}}", "'hdd' is no mask", ""),
        ("{network: {loss_pct: 1}}", "risks data: all traffic of the OSDs' hosts suffers it", "accept_risk"),
    ],
)
def test_a_wrong_word_is_named_with_its_line_and_the_right_one(text: str, what: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_sweep(SWEEP.replace("{GREATER}", text), file="try.yaml")
    assert what in caught.value.what
    assert caught.value.where == "try.yaml:5"
    assert remedy in caught.value.remedy


def test_every_scope_is_read() -> None:
    text = (
        '{osd_disk: {scheduler: bfq}, client_disk: {read_ahead_kb: 0}, osd_host: {net.ipv4.tcp_rmem: "1 2 3"}, '
        "osd_store/class:hdd: {filesystem: xfs}, network/host:a: {mtu: 9000}}"
    )
    sweep = parse_sweep("accept_risk: [mtu]\n" + SWEEP.replace("{GREATER}", text), file="try.yaml")
    assert [(s.scope, s.key) for s in sweep.configuration("x").settings] == [
        ("client_disk", "read_ahead_kb"),
        ("network/host:a", "mtu"),
        ("osd_disk", "scheduler"),
        ("osd_host", "net.ipv4.tcp_rmem"),
        ("osd_store/class:hdd", "filesystem"),
    ]


def test_hosts_can_be_asked_for_what_they_are_not(tmp_path: Path) -> None:
    files = HostFiles(Hosts(), Journal(tmp_path / "journal"))
    absent = HostFile("localhost", "/proc/sys/no/such/key")
    assert files.values([absent]) == {}
    with pytest.raises(HostRefusedError, match="no such value"):
        files.apply({absent: "1"})
