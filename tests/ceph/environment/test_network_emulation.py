"""Network emulation by tc on a real kernel, in a separate network namespace."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from greater_examples import greater, osd
from hypothesis import given
from hypothesis import strategies as st

from cephfit.ceph.environment.host_settings import HostSettings
from cephfit.ceph.environment.network_emulation import Emulation, Emulations, parse_qdisc
from cephfit.ceph.host import Finished, HostRefusedError, LocalHost
from cephfit.ceph.host_access import Hosts
from cephfit.core.errors import InputError
from cephfit.core.journal import Journal
from cephfit.core.values.configuration import Configuration


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

    def test_delays_are_set_or_the_kernel_is_the_reason(self, host: NamespaceHost, tmp_path: Path) -> None:
        wanted = Emulation(delay_ms=5, jitter_ms=1, loss_pct=0.1, rate_mbit=100)
        emulations = Emulations(OneHost(host), Journal(tmp_path / "journal"))
        why = emulations.why_not("h", "lo", wanted)
        if why:
            assert "the kernel of h does not support it (sch_netem)" in why
            with pytest.raises(HostRefusedError, match="qdisc"):
                emulations.apply({("h", "lo"): wanted})
        else:
            emulations.apply({("h", "lo"): wanted})
            assert emulations.now("h", "lo").same(wanted)
        emulations.restore()

    def test_an_existing_discipline_is_not_changed(self, host: NamespaceHost, tmp_path: Path) -> None:
        theirs = ["tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb"]
        assert host.run(theirs).code == 0
        emulations = Emulations(OneHost(host), Journal(tmp_path / "journal"))
        assert "already has a htb" in emulations.why_not("h", "lo", Emulation(rate_mbit=10))
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


def test_the_output_of_tc_for_netem_is_parsed() -> None:
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
