"""The network of a lab's clients: what happens to packets, and the real devices."""

import random
import socket
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cephfit.ceph.environment.network_emulation import Emulation
from cephfit.core.errors import ClusterError
from cephfit.core.units import KIB
from cephfit.lab.network.client_network import ClientNetwork, addresses
from cephfit.lab.network.packet_relay import Direction, PathValues, wire_nbytes
from cephfit.mapper.extrapolation.distance import Distance

_WINDOW = 64 * KIB
"""Linux doubles the buffer that is asked for, and uses about half of it as window."""


def direction(**values: float) -> Direction:
    return Direction(-1, -1, random.Random(7), PathValues(**values))


def packet(nbytes: int, segment: int = 0) -> bytes:
    """A packet of so many bytes with the kernel's header before it; ``segment``: it is cut into such parts."""
    return bytes(4) + segment.to_bytes(2, "little") + bytes(4) + bytes(nbytes)


def test_a_packet_is_delivered_after_the_delay() -> None:
    assert direction(delay_ms=8).delivery_of(packet(100), 5.0) == pytest.approx(5.008)


def test_without_values_a_packet_passes_at_once() -> None:
    assert direction().delivery_of(packet(100), 5.0) == 5.0


def test_a_link_of_limited_rate_sends_one_packet_after_the_other_and_drops_when_its_queue_is_full() -> None:
    path = direction(rate_mbit=1, delay_ms=10)
    # 1107 bytes and Ethernet's 18 are 9000 bits: 9 ms each. 45 packets begin within 0.4 s.
    found = [path.delivery_of(packet(1107), 0.0) for _ in range(50)]
    passed = [at for at in found if at is not None]
    assert passed == pytest.approx([0.010 + 0.009 * (i + 1) for i in range(45)])
    assert path.counts == {"passed": 45, "lost": 0, "overflowed": 5}


def test_a_large_packet_counts_the_headers_of_its_segments() -> None:
    # 52 bytes of headers and 3 x 1448 of data; two more segments have headers and frames of their own.
    assert wire_nbytes(packet(52 + 3 * 1448, segment=1448)) == 52 + 3 * 1448 + 18 + 2 * (52 + 18)
    assert wire_nbytes(packet(100)) == 118


def test_loss_is_a_share_of_the_packets() -> None:
    path = direction(loss_pct=2.5)
    n = 20_000
    lost = sum(path.delivery_of(packet(100), 0.0) is None for _ in range(n))
    assert lost / n == pytest.approx(0.025, abs=4 * (0.025 * 0.975 / n) ** 0.5)
    assert path.counts["lost"] == lost


def test_jitter_is_normal_and_keeps_the_order() -> None:
    path = direction(delay_ms=50, jitter_ms=10)
    far_apart = [at - i for i in range(4000) if (at := path.delivery_of(packet(100), float(i))) is not None]
    assert statistics.fmean(far_apart) == pytest.approx(0.050, abs=0.001)
    assert statistics.pstdev(far_apart) == pytest.approx(0.010, rel=0.05)
    close = [path.delivery_of(packet(100), 5000.0 + i / 1e4) for i in range(500)]
    assert close == sorted(at for at in close if at is not None)


def test_labs_have_addresses_of_their_own() -> None:
    assert addresses(1024) == ("198.18.0.0", "198.18.0.1")
    assert addresses(21760) == ("198.18.162.0", "198.18.162.1")
    assert addresses(65535) == ("198.19.247.254", "198.19.247.255")


@pytest.fixture
def network(tmp_path: Path) -> Iterator[ClientNetwork]:
    """A running network; it needs no lab, because it measures against this machine."""
    found = ClientNetwork(tmp_path, 20_000 + random.randrange(10_000))
    found.start()
    yield found
    found.stop()


@pytest.mark.root
def test_clients_are_as_far_away_as_asked(network: ClientNetwork) -> None:
    near = network.read().figures.rtt_ms
    network.set(Emulation(delay_ms=20))
    reading = network.read()
    assert reading.values == Emulation(delay_ms=20)
    assert 40 <= reading.figures.rtt_ms < 40 + near + 20, "a busy machine may add some"
    assert reading.figures.loss_pct == 0
    assert "round trip" in network.measured()[1]


@pytest.mark.root
def test_packets_are_lost_and_tcp_still_transfers(network: ClientNetwork) -> None:
    network.set(Emulation(delay_ms=1, loss_pct=20))
    figures = network.calibrate(transfer_seconds=1).figures
    assert figures.loss_pct == pytest.approx(20, abs=10)
    assert figures.mbit_per_s is None or figures.mbit_per_s > 0


@pytest.mark.root
def test_a_rate_limits_a_transfer(network: ClientNetwork) -> None:
    network.set(Emulation(rate_mbit=20))
    rate = network.calibrate(transfer_seconds=2).figures.mbit_per_s
    # 1448 of 1518 bytes are payload.
    assert rate is not None
    assert 10 < rate < 20


_ASKER = """
import socket, sys, time
end = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for _ in range(10):
    before = time.monotonic()
    end.sendall(bytes(int(sys.argv[2])))
    end.recv(1)
    print(time.monotonic() - before)
"""


@pytest.mark.root
@pytest.mark.parametrize("size", [8 * KIB, 512 * KIB])
def test_a_window_costs_the_round_trips_of_the_model(network: ClientNetwork, size: int) -> None:
    """Other processes delay the round trips, of the reading or of the transfer: one of three agrees."""
    network.set(Emulation(delay_ms=20))
    for _ in range(3):
        rtt_ms = network.read().figures.rtt_ms
        measured = seconds_to_send(network, size)
        model = Distance(one_way_seconds=rtt_ms / 2e3, window_nbytes=_WINDOW)
        if measured == pytest.approx(model.delay_seconds(size), rel=0.25):
            return
    pytest.fail(f"the last of three took {measured} s; the model says {model.delay_seconds(size)} s")


def seconds_to_send(network: ClientNetwork, size: int) -> float:
    """Return the median time of a message and its answer from inside the network."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WINDOW)
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        answering = threading.Thread(target=_answer, args=(server, size), daemon=True)
        answering.start()
        words = [*network.inside(), sys.executable, "-c", _ASKER, str(server.getsockname()[1]), str(size)]
        said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
        answering.join(timeout=10)
    # The first messages find the small congestion window of a new connection.
    return statistics.median(map(float, said.stdout.split()[5:]))


def _answer(server: socket.socket, size: int) -> None:
    connection, _ = server.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        got = 0
        while data := connection.recv(1 << 20):
            got += len(data)
            if got % size == 0:
                connection.send(b"x")


@pytest.mark.root
def test_nothing_is_left_when_the_relay_ends(tmp_path: Path) -> None:
    found = ClientNetwork(tmp_path, 31_000 + random.randrange(1000))
    found.start()
    pid = found.pid
    assert f"cf{pid}:" in _links()
    found.stop()
    assert found.pid is None
    assert f"cf{pid}:" not in _links()
    with pytest.raises(ClusterError, match="does not run"):
        found.set(Emulation(delay_ms=1))


def _links() -> str:
    return subprocess.run(["ip", "-oneline", "link"], capture_output=True, text=True, check=True).stdout
