"""Network distance: packets that a host sends are held back, lost or slowed down by its kernel (netem, tbf)."""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cephfit.ceph.hosts.host import Host, checked
from cephfit.ceph.hosts.host_access import Hosts
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import HostError, InputError
from cephfit.core.journal import Entry, Journal

_QDISC = "queueing discipline"
_HANDLE = "cef:"
"""Of what is put on an interface here; anything else there is somebody's own."""
_LIMIT_PACKETS = 100_000
"""What netem holds back at most: 1 Gbit/s of frames of 1500 bytes for a second. Its default of 1000 would lose
packets that were to be delayed only."""
_TBF_LATENCY_MS = 400
_TBF_BURST_MS = 10
"""A bucket of so much of the rate, but no less than 128 KiB: a frame larger than it would never pass."""


@dataclass(frozen=True, slots=True)
class Emulation:
    """What happens to packets on their way out.

    Attributes:
        delay_ms: each waits so long.
        jitter_ms: standard deviation of that, normally distributed.
        loss_pct: lost, of a hundred.
        rate_mbit: 10**6 bits per second at most; 0: no limit.
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
        """The kernel's discipline for it: ``tbf`` where only the rate is limited, else ``netem``."""
        return "netem" if self.delay_ms or self.loss_pct else "tbf" if self.rate_mbit else ""

    def arguments(self) -> list[str]:
        """As tc takes them after the discipline's name."""
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
        """Whether the kernel's clock ticks and fixed-point fractions alone may tell them apart."""
        ours = (self.delay_ms, self.jitter_ms, self.loss_pct, self.rate_mbit)
        theirs = (other.delay_ms, other.jitter_ms, other.loss_pct, other.rate_mbit)
        return all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-4) for a, b in zip(ours, theirs, strict=True))


def emulation_of(settings: Mapping[str, Any]) -> Emulation:
    """From keys of the scope ``network``.

    Raises:
        InputError: a value is no number, or they do not go together.
    """
    numbers = {}
    for key, value in settings.items():
        try:
            numbers[key] = float(value)
        except ValueError:
            raise InputError(f"network/{key} = {value!r} is not a number") from None
    return Emulation(**numbers)


def parse_qdisc(text: str) -> tuple[Emulation, str, bool]:
    """What stands at the root of an interface, from ``tc -j qdisc show dev IFACE``.

    Returns:
        What it does to packets, its name, and whether we put it there.
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


class Emulations:
    """Puts emulations on interfaces of hosts where the kernel's own default stands, and takes them off again."""

    def __init__(self, hosts: Hosts, journal: Journal) -> None:
        self._hosts = hosts
        self._journal = journal

    def why_not(self, host: str, interface: str, wanted: Emulation) -> str:
        """Why an emulation cannot be put there; empty if it can. Changes nothing."""
        if not wanted.kind:
            return ""
        reached = self._hosts.named(host)
        # Tried on the loopback of a network namespace of its own, which goes with the program.
        tried = reached.run(
            ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", wanted.kind, *wanted.arguments()]
        )
        if tried.code != 0:
            return f"the kernel of {host} cannot do it (sch_{wanted.kind}): {tried.words}"
        _, kind, ours = parse_qdisc(self._show(reached, interface))
        if not ours and not self._is_default(reached, interface):
            return f"{interface} of {host} has a {kind} of its own, which cannot be put back as it was"
        return ""

    def apply(self, wanted: Mapping[tuple[str, str], Emulation]) -> None:
        """Put these on (host, interface); what was put elsewhere before is taken off.

        Raises:
            HostError: a host cannot be reached or refuses.
        """
        for entry in reversed(self._journal.entries(_QDISC)):
            host, _, interface = entry.place.partition(":")
            if not wanted.get((host, interface), Emulation()).kind:
                self._forget(entry)
        for (host, interface), emulation in wanted.items():
            if not emulation.kind:
                continue
            self._journal.note(_QDISC, f"{host}:{interface}", None)
            at = ["dev", interface, "root", "handle", _HANDLE]
            reached = self._hosts.named(host)
            _, kind, ours = parse_qdisc(self._show(reached, interface))
            if ours and kind != emulation.kind:  # a discipline changes its values, not its kind
                self._take_off(host, interface)
            checked(reached, ["tc", "qdisc", "replace", *at, emulation.kind, *emulation.arguments()])

    def hosts(self) -> set[str]:
        """Those with something of ours, by the journal."""
        return {_host(entry) for entry in self._journal.entries(_QDISC)}

    def restore(self, *, without: Collection[str] = ()) -> None:
        """Nothing of ours is left on any interface; a host that cannot be reached does not keep others back.

        Args:
            without: hosts that are left as they are, and in the journal.
        """
        tried = ErrorCollector()
        for entry in reversed(self._journal.entries(_QDISC)):
            if _host(entry) not in without:
                tried.make(partial(self._forget, entry))
        tried.end()

    def now(self, host: str, interface: str) -> Emulation:
        """What is on an interface now."""
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
            if "Cannot find device" in error.what:  # an interface that is gone took its discipline with it
                return "[]"
            raise

    def _is_default(self, host: Host, interface: str) -> bool:
        """Whether the kernel put it there by itself: then it has no handle, and comes back by itself."""
        shown = json.loads(self._show(host, interface) or "[]")
        return all(qdisc.get("handle") == "0:" for qdisc in shown if qdisc.get("root"))


def _host(entry: Entry) -> str:
    return entry.place.partition(":")[0]
