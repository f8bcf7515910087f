"""Measure a path to this machine: round trips and loss by datagrams, the rate by a transfer.

``measured`` opens the ends that answer, and starts this module as a program in the namespace of the clients.
"""

import json
import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cephfit.core.errors import HostError
from cephfit.lab.machine import run

PINGS = 200
_GAP_SECONDS = 0.005
_LAST_SECONDS = 2.0
_CHUNK = b"\xa5" * (1 << 16)
_PING = struct.Struct("Id")
_LEAST_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class PathFigures:
    """What was measured on a path.

    Attributes:
        rtt_ms: median round trip of datagrams.
        rtt_mean_ms: their mean.
        rtt_sd_ms: their standard deviation.
        loss_pct: lost packets of one direction, if both lose alike.
        pings: datagrams sent.
        mbit_per_s: payload of one TCP connection towards the storage; None if not measured.
    """

    rtt_ms: float
    rtt_mean_ms: float
    rtt_sd_ms: float
    loss_pct: float
    pings: int
    mbit_per_s: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measured(
    inside: Sequence[str], *, pings: int = PINGS, transfer_seconds: float = 0.0, one_by_one: bool = False
) -> PathFigures:
    """Measure the path from a namespace to this machine.

    Args:
        inside: words before a command that runs it in the namespace.
        pings: number of datagrams, one every 5 ms.
        one_by_one: send each datagram when the one before is back, as a client with one access outstanding does.
        transfer_seconds: duration of the transfer; 0: none.

    Raises:
        HostError: no datagram came back.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as echo, socket.socket() as sink:
        echo.bind(("127.0.0.1", 0))
        sink.bind(("127.0.0.1", 0))
        sink.listen(1)
        received: list[float] = []
        ends = [
            threading.Thread(target=_echo, args=(echo,), daemon=True),
            threading.Thread(target=_receive, args=(sink, received), daemon=True),
        ]
        for end in ends if transfer_seconds else ends[:1]:
            end.start()
        ports = [str(s.getsockname()[1]) for s in (echo, sink)]
        words = [sys.executable, "-m", __name__, *ports, str(pings), str(transfer_seconds), str(int(one_by_one))]
        answer = run([*inside, *words], seconds=60 + 4 * transfer_seconds)
        if transfer_seconds:
            ends[1].join(timeout=30)
        echo.sendto(b"", echo.getsockname())  # ends its thread
    rtts = json.loads(answer)["rtts_ms"]
    if not rtts:
        raise HostError("no packet came back", where="client network", remedy="set a smaller loss_pct")
    lost = 1 - len(rtts) / pings
    return PathFigures(
        rtt_ms=statistics.median(rtts),
        rtt_mean_ms=statistics.fmean(rtts),
        rtt_sd_ms=statistics.pstdev(rtts),
        loss_pct=100 * (1 - (1 - lost) ** 0.5),
        pings=pings,
        mbit_per_s=received[0] if received else None,
    )


def _echo(end: socket.socket) -> None:
    while True:
        packet, sender = end.recvfrom(2048)
        if not packet:
            return
        end.sendto(packet, sender)


def _receive(end: socket.socket, received: list[float]) -> None:
    """Append the rate in 10**6 bits per second, without the first quarter of the time: TCP's slow start."""
    connection, _ = end.accept()
    arrivals: list[tuple[float, int]] = []
    with connection:
        while data := connection.recv(1 << 20):
            arrivals.append((time.monotonic(), len(data)))
    if not arrivals:
        return
    begin = arrivals[0][0] + (arrivals[-1][0] - arrivals[0][0]) / 4
    late = [(at, n) for at, n in arrivals if at >= begin]
    seconds = late[-1][0] - late[0][0]
    if seconds >= _LEAST_SECONDS:
        received.append(sum(n for _, n in late[1:]) * 8 / 1e6 / seconds)


def _pinged(port: int, pings: int, *, one_by_one: bool) -> list[float]:
    """Return the round trips in ms of the datagrams that came back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.connect(("127.0.0.1", port))
        found: list[float] = []

        def receive(until: float) -> None:
            """Read until a time, or until one is back if they are sent one by one."""
            n_before = len(found)
            while not (one_by_one and len(found) > n_before) and (left := until - time.perf_counter()) > 0:
                end.settimeout(left)
                try:
                    _, sent = _PING.unpack(end.recv(64))
                except TimeoutError:
                    return
                found.append(1e3 * (time.perf_counter() - sent))

        for number in range(pings):
            end.send(_PING.pack(number, time.perf_counter()))
            receive(time.perf_counter() + (_LAST_SECONDS if one_by_one else _GAP_SECONDS))
        if one_by_one:
            return found
        until = time.perf_counter() + _LAST_SECONDS
        while len(found) < pings and time.perf_counter() < until:
            receive(time.perf_counter() + _GAP_SECONDS)
        return found


def _transfer(port: int, seconds: float) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as end:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            end.sendall(_CHUNK)


def main() -> None:
    echo_port, sink_port, pings, seconds, one_by_one = sys.argv[1:]
    rtts = _pinged(int(echo_port), int(pings), one_by_one=one_by_one == "1")
    if float(seconds):
        _transfer(int(sink_port), float(seconds))
    print(json.dumps({"rtts_ms": rtts}))


if __name__ == "__main__":
    main()
