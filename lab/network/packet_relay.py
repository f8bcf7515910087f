"""The process that is the network between a lab's clients and its daemons: it delays, drops and paces packets.

It opens a TUN device on this machine, moves itself to a new network namespace and opens another one there. Packets
of one device go to the other, each after its delay. Clients that run in the namespace reach 127.0.0.1 of the
machine, where the lab's daemons listen, only through it; traffic between daemons does not pass. Everything belongs
to this process, so the kernel removes devices and namespace when it ends, also after a kill.

The kernel may hand over packets of up to 64 KiB that it would cut into segments later (``IFF_VNET_HDR``, "generic
segmentation offload"): they pass as one, which keeps up with fast disks. With loss each segment must have its own
chance, so that the offload is off then. Source: Linux, Documentation/networking/tuntap.rst and virtio_net.h.

    python -m cephfit.lab.network.packet_relay FOLDER ADDRESS_HERE ADDRESS_THERE
"""

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SETTINGS, APPLIED, PID = "settings.json", "applied.json", "pid"
_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _TUNSETOFFLOAD, _TUNSETVNETHDRSZ = 0x400454CA, 0x400454D0, 0x400454D8
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_CHECKSUM, _TSO4 = 0x01, 0x02
_HEADER_NBYTES = 10
"""``struct virtio_net_hdr``: flags, kind of offload, header length, segment size, checksum begin and offset."""
_MOST_NBYTES = 65536 + _HEADER_NBYTES
_MTU = 1500
_FRAME_NBYTES = 18
"""Ethernet's header and checksum, which a link of a given rate carries too."""
_HEADERS_NBYTES = 52
"""IPv4 and TCP with time stamps: what each further segment of a large packet repeats."""
_QUEUE_SECONDS = 0.4
"""A packet that would wait longer for a link of limited rate is dropped, as by ceph/environment's token bucket."""
_BURST = 64
_CAUGHT_UP = (BlockingIOError, InterruptedError)


@dataclass(frozen=True, slots=True)
class PathValues:
    """What happens to the packets of each direction; the names are those of the scope ``client_network``."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss_pct: float = 0.0
    rate_mbit: float = 0.0


def open_tun(name: str, *, offload: bool) -> int:
    """Create a TUN device in the namespace of this process; return its descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    request = struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR)
    fcntl.ioctl(descriptor, _TUNSETIFF, request)
    fcntl.ioctl(descriptor, _TUNSETVNETHDRSZ, struct.pack("i", _HEADER_NBYTES))
    set_offload(descriptor, offload=offload)
    return descriptor


def set_offload(descriptor: int, *, offload: bool) -> None:
    """Let the kernel hand over large packets, or make it cut them into segments with checksums."""
    fcntl.ioctl(descriptor, _TUNSETOFFLOAD, _CHECKSUM | _TSO4 if offload else 0)


def wire_nbytes(packet: bytes) -> int:
    """Return the bytes that a packet takes on an Ethernet link, each of its segments with its headers."""
    nbytes = len(packet) - _HEADER_NBYTES
    segment = int.from_bytes(packet[4:6], "little")
    further = max(0, -(-(nbytes - _HEADERS_NBYTES) // segment) - 1) if segment else 0
    return nbytes + _FRAME_NBYTES + further * (_HEADERS_NBYTES + _FRAME_NBYTES)


@dataclass(slots=True)
class Direction:
    """One direction of the path. Packets keep their order, so that jitter is no reordering.

    Attributes:
        source: descriptor to read from.
        sink: descriptor to write to.
        rng: of jitter and loss.
        values: in force.
        waiting: (time of delivery, packet), in order.
        link_free_at: when the link of limited rate has sent all packets so far.
        counts: packets that passed, were lost at random, and found the queue of the link full.
    """

    source: int
    sink: int
    rng: random.Random
    values: PathValues = field(default_factory=PathValues)
    waiting: list[tuple[float, int, bytes]] = field(default_factory=list)
    link_free_at: float = 0.0
    last_at: float = 0.0
    counts: dict[str, int] = field(default_factory=lambda: {"passed": 0, "lost": 0, "overflowed": 0})

    def delivery_of(self, packet: bytes, now: float) -> float | None:
        """Return when a packet that arrives now is delivered; None if it is dropped."""
        values = self.values
        if values.loss_pct and self.rng.random() < values.loss_pct / 100:
            self.counts["lost"] += 1
            return None
        sent = now
        if values.rate_mbit:
            begin = max(now, self.link_free_at)
            if begin - now > _QUEUE_SECONDS:
                self.counts["overflowed"] += 1
                return None
            sent = self.link_free_at = begin + wire_nbytes(packet) * 8 / (values.rate_mbit * 1e6)
        delay = values.delay_ms
        if values.jitter_ms:
            delay = max(0.0, self.rng.gauss(delay, values.jitter_ms))
        self.last_at = max(self.last_at, sent + delay / 1e3)
        self.counts["passed"] += 1
        return self.last_at

    def take(self, now: float) -> None:
        """Read the packets that have arrived."""
        for _ in range(_BURST):
            try:
                packet = os.read(self.source, _MOST_NBYTES)
            except _CAUGHT_UP:
                return
            if (at := self.delivery_of(packet, now)) is not None:
                heapq.heappush(self.waiting, (at, self.counts["passed"], packet))

    def give(self, now: float) -> None:
        """Write the packets that are due."""
        while self.waiting and self.waiting[0][0] <= now:
            _, _, packet = heapq.heappop(self.waiting)
            try:
                os.write(self.sink, packet)
            except OSError:
                self.counts["overflowed"] += 1  # the other side's queue is full, or its device is not up yet


def run_relay(directions: tuple[Direction, Direction]) -> None:
    """Relay until the process ends."""
    by_source = {direction.source: direction for direction in directions}
    while True:
        due = min((d.waiting[0][0] for d in directions if d.waiting), default=None)
        # `select` takes microseconds; epoll's milliseconds would round each delay up.
        wait = None if due is None else max(0.0, due - time.monotonic())
        ready, _, _ = select.select(list(by_source), [], [], wait)
        now = time.monotonic()
        for descriptor in ready:
            by_source[descriptor].take(now)
        for direction in directions:
            direction.give(time.monotonic())


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def _sysctl(name: str, value: str) -> None:
    Path("/proc/sys/net", name).write_text(value)


def _connect(folder: Path, here: str, there: str) -> tuple[int, int]:
    """Create both devices, the second one in a new namespace, into which this process moves."""
    near, far = f"cf{os.getpid()}", "client0"
    outer = open_tun(near, offload=True)
    _sysctl(f"ipv6/conf/{near}/disable_ipv6", "1")
    _ip("address", "add", here, "peer", there, "dev", near)
    _ip("link", "set", near, "mtu", str(_MTU), "txqueuelen", "10000", "up")
    # The daemons' address is 127.0.0.1: it is accepted from, and answers go to, this device only.
    _sysctl(f"ipv4/conf/{near}/route_localnet", "1")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    inner = open_tun(far, offload=True)
    _sysctl("ipv4/conf/all/route_localnet", "1")
    _ip("address", "add", there, "peer", here, "dev", far)
    _ip("link", "set", far, "mtu", str(_MTU), "txqueuelen", "10000", "up")
    # The namespace's own loopback stays down, so that 127.0.0.1 is not there, but behind the device.
    _ip("route", "add", "127.0.0.0/8", "dev", far, "src", there)
    return outer, inner


def _write(path: Path, document: Mapping[str, Any]) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(document))
    new.replace(path)


def main() -> None:
    folder, here, there = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    outer, inner = _connect(folder, here, there)
    rng = random.Random()
    directions = Direction(inner, outer, rng), Direction(outer, inner, rng)

    def reread(*_: object) -> None:
        asked = json.loads((folder / SETTINGS).read_text())
        values = PathValues(**asked["values"])
        for descriptor in (outer, inner):
            set_offload(descriptor, offload=not values.loss_pct)
        for direction in directions:
            direction.values = values
        _write(folder / APPLIED, {"serial": asked["serial"], "values": asdict(values)})

    signal.signal(signal.SIGHUP, reread)
    reread()
    (folder / PID).write_text(str(os.getpid()))
    run_relay(directions)


if __name__ == "__main__":
    main()
