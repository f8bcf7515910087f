"""Network distance: a host's kernel delays, drops or rate-limits outgoing packets (netem, tbf)."""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from cephfit.ceph.host import Host, checked
from cephfit.ceph.host_access import Hosts
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import HostError, InputError
from cephfit.core.journal import Entry, Journal

_QDISC = "queueing discipline"
_HANDLE = "cef:"
"""Handle of disciplines set here; any other discipline belongs to the admin."""
_LIMIT_PACKETS = 100_000
"""Limit of netem's queue in packets: 1 Gbit/s of frames of 1500 bytes for a second. The default of 1000 would drop
packets that should only be delayed."""
_TBF_LATENCY_MS = 400
_TBF_BURST_MS = 10
"""Bucket size in seconds of the rate, at least 128 KiB: a frame larger than the bucket would never pass."""


@dataclass(frozen=True, slots=True)
class Emulation:
    """The emulation for outgoing packets.

    Attributes:
        delay_ms: delay of each packet.
        jitter_ms: standard deviation of the delay, normally distributed.
        loss_pct: lost packets in percent.
        rate_mbit: limit in 10**6 bits per second; 0: no limit.
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss_pct: float = 0.0
    rate_mbit: float = 0.0

    def __post_init__(self) -> None:
        if min(self.delay_ms, self.jitter_ms, self.loss_pct, self.rate_mbit) < 0 or self.loss_pct >= 100:
            raise InputError(f"these network settings are impossible: {self}")
        if self.jitter_ms and not self.delay_ms:
            raise InputError("jitter_ms without delay_ms: only a delay can vary", remedy="set delay_ms too")

    @property
    def kind(self) -> str:
        """The kernel's discipline: ``tbf`` where only the rate is limited, else ``netem``."""
        return "netem" if self.delay_ms or self.loss_pct else "tbf" if self.rate_mbit else ""

    def arguments(self) -> list[str]:
        """Return tc's arguments after the discipline's name."""
        if self.kind == "tbf":
            nbytes = max(1 << 17, round(self.rate_mbit * 1e6 / 8 * _TBF_BURST_MS / 1e3))
            return ["rate", f"{self.rate_mbit:g}mbit", "burst", str(nbytes), "latency", f"{_TBF_LATENCY_MS}ms"]
        words = ["limit", str(_LIMIT_PACKETS)]
        if self.delay_ms:
            words += ["delay", f"{self.delay_ms:g}ms"]
        if self.jitter_ms:
            words += [f"{self.jitter_ms:g}ms", "distribution", "normal"]
        if self.loss_pct:
            words += ["loss", f"{self.loss_pct:g}%"]
        return [*words, "rate", f"{self.rate_mbit:g}mbit"] if self.rate_mbit else words

    def same(self, other: "Emulation") -> bool:
        """Return whether two emulations differ by the kernel's rounding only (ticks, fixed-point fractions)."""
        ours = (self.delay_ms, self.jitter_ms, self.loss_pct, self.rate_mbit)
        theirs = (other.delay_ms, other.jitter_ms, other.loss_pct, other.rate_mbit)
        return all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-4) for a, b in zip(ours, theirs, strict=True))


def emulation_of(settings: Mapping[str, Any]) -> Emulation:
    """Build an emulation from keys of the scope ``network``.

    Raises:
        InputError: a value is not a number, or the values contradict each other.
    """
    numbers = {}
    for key, value in settings.items():
        try:
            numbers[key] = float(value)
        except ValueError:
            raise InputError(f"network/{key} = {value!r} is not a number") from None
    return Emulation(**numbers)


def parse_qdisc(text: str) -> tuple[Emulation, str, bool]:
    """Parse the root discipline of an interface from ``tc -j qdisc show dev IFACE``.

    Returns:
        Its emulation, its name, and whether cephfit set it.
    """
    for qdisc in json.loads(text or "[]"):
        if qdisc.get("root") or qdisc.get("handle") == _HANDLE:
            options = qdisc.get("options", {})
            delay, rate = options.get("delay", {}), options.get("rate", 0)
            nbytes_per_s = rate.get("rate", 0) if isinstance(rate, dict) else rate
            found = Emulation(
                delay_ms=float(delay.get("delay", 0)) * 1e3,
                jitter_ms=float(delay.get("jitter", 0)) * 1e3,
                loss_pct=float(options.get("loss-random", {}).get("loss", 0)) * 100,
                rate_mbit=nbytes_per_s * 8 / 1e6,
            )
            return found, str(qdisc["kind"]), qdisc.get("handle") == _HANDLE
    return Emulation(), "", False


class ClientPath(Protocol):
    """The path between clients and daemons, whose distance can be set. Daemons reach each other without it."""

    def set(self, values: Emulation) -> None:
        """Set what happens to the packets of each direction.

        Raises:
            ClusterError: it cannot be set.
        """

    def measured(self) -> tuple[Emulation, str]:
        """Return the values in force, and what a client measured, as text.

        Raises:
            CephfitError: it cannot be measured.
        """


class Emulations:
    """Sets emulations on interfaces with the kernel's default discipline, and removes them again."""

    def __init__(self, hosts: Hosts, journal: Journal) -> None:
        self._hosts = hosts
        self._journal = journal

    def why_not(self, host: str, interface: str, required: Emulation) -> str:
        """Return why an emulation cannot be set there; empty if it can. Changes nothing."""
        if not required.kind:
            return ""
        reached = self._hosts.named(host)
        # Tested on the loopback of a temporary network namespace, which ends with the program.
        tried = reached.run(
            ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", required.kind, *required.arguments()]
        )
        if tried.code != 0:
            return f"the kernel of {host} does not support it (sch_{required.kind}): {tried.words}"
        _, kind, ours = parse_qdisc(self._show(reached, interface))
        if not ours and not self._is_default(reached, interface):
            return f"{interface} of {host} already has a {kind}, which cannot be restored exactly"
        return ""

    def apply(self, required: Mapping[tuple[str, str], Emulation]) -> None:
        """Set these on (host, interface); remove those that were set elsewhere before.

        Raises:
            HostError: a host is unreachable or refuses.
        """
        for entry in reversed(self._journal.entries(_QDISC)):
            host, _, interface = entry.place.partition(":")
            if not required.get((host, interface), Emulation()).kind:
                self._forget(entry)
        for (host, interface), emulation in required.items():
            if not emulation.kind:
                continue
            self._journal.note(_QDISC, f"{host}:{interface}", None)
            at = ["dev", interface, "root", "handle", _HANDLE]
            reached = self._hosts.named(host)
            _, kind, ours = parse_qdisc(self._show(reached, interface))
            if ours and kind != emulation.kind:  # a discipline can change its values, not its kind
                self._take_off(host, interface)
            checked(reached, ["tc", "qdisc", "replace", *at, emulation.kind, *emulation.arguments()])

    def hosts(self) -> set[str]:
        """Return the hosts with an emulation of ours, by the journal."""
        return {_host(entry) for entry in self._journal.entries(_QDISC)}

    def restore(self, *, without: Collection[str] = ()) -> None:
        """Remove every emulation of ours; an unreachable host does not prevent the others.

        Args:
            without: hosts that stay unchanged and in the journal.
        """
        tried = ErrorCollector()
        for entry in reversed(self._journal.entries(_QDISC)):
            if _host(entry) not in without:
                tried.make(partial(self._forget, entry))
        tried.end()

    def now(self, host: str, interface: str) -> Emulation:
        """Read the present discipline of an interface."""
        return parse_qdisc(self._show(self._hosts.named(host), interface))[0]

    def _forget(self, entry: Entry) -> None:
        host, _, interface = entry.place.partition(":")
        self._take_off(host, interface)
        self._journal.forget(_QDISC, entry.place)

    def _take_off(self, host: str, interface: str) -> None:
        reached = self._hosts.named(host)
        if parse_qdisc(self._show(reached, interface))[2]:
            checked(reached, ["tc", "qdisc", "del", "dev", interface, "root"])

    def _show(self, host: Host, interface: str) -> str:
        try:
            return checked(host, ["tc", "-j", "qdisc", "show", "dev", interface])
        except HostError as error:
            if "Cannot find device" in error.what:  # the discipline of a removed interface is gone with it
                return "[]"
            raise

    def _is_default(self, host: Host, interface: str) -> bool:
        """Return whether it is the kernel's default: that has no handle, and returns by itself."""
        shown = json.loads(self._show(host, interface) or "[]")
        return all(qdisc.get("handle") == "0:" for qdisc in shown if qdisc.get("root"))


def _host(entry: Entry) -> str:
    return entry.place.partition(":")[0]
