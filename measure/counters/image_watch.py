"""The counters of the clients' images while something runs: asked for, read until all have come, held ready.

What the OSDs count for single images: ``rbd perf image counters``, of the manager's module ``rbd_support``.

`rbd perf image iostat` and `iotop` show its rates. Behind them are sums: since somebody began to ask (the manager
forgets a minute after the last question), every OSD counts what operations on an image's data objects moved and
sends that once per report period (``mgr_stats_period``: 5 s; a lab: 1 s), and the manager adds it up as often. So
nothing is sampled and nothing is lost: two periods after the last I/O the sum is exact. But *when* it happened is
known to two periods only, because OSDs report each at its own time; short runs are too short for that.

Operations are those of OSDs: a block over several objects makes several. So bytes are compared.
"""

import bisect
import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from types import TracebackType
from typing import Any

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.core.errors import CephfitError
from cephfit.core.optional_modules import optional_module
from cephfit.core.protocols import CephAdmin, Client
from cephfit.core.values.cells import Op
from cephfit.core.waiting import wait_until_clear
from cephfit.measure.ceph_bench.bench_process import Image, image_of
from cephfit.measure.counters.block_device import window_count
from cephfit.measure.counters.osd_watch import admin_of
from cephfit.measure.engine import ClientOutcome, IndependentCount

SOURCE = "the OSDs, for this image alone (rbd perf image counters)"
COMMAND = "rbd perf image counters"
"""To the manager itself: through a monitor it would not know whose key asks, and refuse."""


@dataclass(frozen=True, slots=True)
class ImageIo:
    """What was done to an image's data objects since the manager began to count.

    Attributes:
        written_nbytes, read_nbytes: that operations carried, whatever the number of copies.
        write_ops, read_ops: operations of OSDs.
    """

    write_ops: int = 0
    read_ops: int = 0
    written_nbytes: int = 0
    read_nbytes: int = 0

    def of(self, op: Op) -> int:
        return self.read_nbytes if op is Op.READ else self.written_nbytes

    def plus(self, other: "ImageIo") -> "ImageIo":
        return ImageIo(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def since(self, before: "ImageIo") -> "ImageIo":
        return ImageIo(*(a - b for a, b in zip(astuple(self), astuple(before), strict=True)))


def parse(answer: Mapping[str, Any]) -> dict[tuple[str, str], ImageIo]:
    """(pool, image) to its counters, from the answer to ``rbd perf image counters``. Pure.

    An image that was deleted is listed for some minutes more: one that was made anew under its name counts on.

    Raises:
        KeyError, TypeError, ValueError: it is no such answer.
    """
    names = list(answer["counter_descriptors"])
    places = [names.index(word) for word in ("write_ops", "read_ops", "write_bytes", "read_bytes")]
    found: dict[tuple[str, str], ImageIo] = {}
    for counter in answer["counters"]:
        for key, values in counter.items():  # one entry, such as "0/volume": [...]
            number, _, image = str(key).partition("/")
            place = (str(answer["pool_descriptors"][number]), image)
            found[place] = found.get(place, ImageIo()).plus(ImageIo(*(int(values[p]) for p in places)))
    return found


def image_count(
    times: Sequence[float],
    values: Sequence[int],
    *,
    moved: Sequence[int],
    runtime_ns: int,
    in_flight_nbytes: int,
    period_seconds: float,
) -> IndependentCount:
    """The count over the measured time, which ends with the counter's last change. Pure.

    Counters rise in steps, each OSD's at its own time within a period, and the manager lies up to another one
    behind. Begin and end are behind alike, but for a period: so much of what moved around the begin may belong to
    either side.

    Args:
        times: seconds, rising, shape (n,), n >= 2.
        values: bytes, never falling, shape (n,).
        moved: bytes in both directions, shape (n,).
        runtime_ns: of the measured time.
        in_flight_nbytes: at most so much was under way when it began.
        period_seconds: of reports.
    """
    count = window_count(
        list(times),
        list(values),
        source=SOURCE,
        runtime_ns=runtime_ns,
        in_flight_nbytes=in_flight_nbytes,
        moved=list(moved),
    )
    last = next((i for i in range(len(moved) - 1, 0, -1) if moved[i] != moved[i - 1]), 0)
    start = times[last] - runtime_ns / 1e9
    before = values[max(0, bisect.bisect_right(times, start - period_seconds) - 1)]
    after = values[min(len(values) - 1, bisect.bisect_left(times, start + period_seconds))]
    return IndependentCount(
        source=count.source,
        window_nbytes=count.window_nbytes,
        total_nbytes=count.total_nbytes,
        allowed_nbytes=max(count.allowed_nbytes, in_flight_nbytes + after - before),
    )


LEAST_PERIODS = 10
"""Of reports, that a run must last: the window's ends are uncertain by one each, a fifth of such a run."""
_USUAL_PERIOD_SECONDS = 5.0
_QUIET_PERIODS = 2.5
"""So long without a change, and all reports have come: one for the OSDs', one for the manager's, and a half."""
_BUSY_SECONDS = 3.0
"""By which a busy manager may be late."""
_TOLD_PERIODS = 0.2
_THROUGH = frozenset({"writearound"})
"""Policies of librbd's cache under which every I/O reaches the OSDs once."""


class ImageWatch:
    """Reads the counters of the clients' images while a ``with`` block runs, and until all reports have come.

    That nobody can count is no error: ``why_not`` says why.

    Args:
        clients: of one run.
        op: the direction that is measured.
        run_seconds: how long is measured.
    """

    def __init__(self, clients: Sequence[Client], op: Op, *, run_seconds: float) -> None:
        self._clients = {c.name: c for c in clients}
        self._op = op
        self._run_seconds = run_seconds
        self._why_not: dict[str, str] = {}
        self._images: dict[str, Image] = {}
        self._admin: RadosAdmin | None = None
        self._period_seconds = _USUAL_PERIOD_SECONDS
        self._times: list[float] = []
        self._series: dict[str, list[ImageIo]] = {}
        self._fault = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read_until_over, name="image counters", daemon=True)

    def why_not(self, client: Client) -> str:
        """Why nobody counted for a client; empty if somebody did."""
        if why := self._why_not.get(client.name, self._fault):
            return why
        series = self._series.get(client.name, [])
        if any(now.of(op) < before.of(op) for before, now in itertools.pairwise(series) for op in Op):
            return "the manager restarted its count of the images' I/O in between"
        if len(series) < 2 or series[-1] == series[0]:
            # A cache tier's or a data pool's PGs, which are of another pool than the image.
            return "the manager counted nothing for the image: its data lie behind another pool"
        return ""

    def counted(self, outcome: ClientOutcome, client: Client, *, in_flight_nbytes: int) -> ClientOutcome:
        """A client's outcome with what was counted in its measured time, or why nobody did; after the block.

        Args:
            outcome: of a program that opened the image.
            client: whose image.
            in_flight_nbytes: at most so much was under way when the measured time began.
        """
        if outcome.metrics is None:
            return outcome
        if why := self.why_not(client):
            return replace(outcome, uncounted=why)
        series = self._series[client.name]
        count = image_count(
            self._times,
            [io.of(self._op) for io in series],
            moved=[io.read_nbytes + io.written_nbytes for io in series],
            runtime_ns=outcome.metrics.runtime_ns,
            in_flight_nbytes=in_flight_nbytes,
            period_seconds=self._period_seconds,
        )
        done = {"report_seconds": self._period_seconds, **asdict(series[-1].since(series[0]))}
        return replace(outcome, count=count, uncounted="", evidence={**outcome.evidence, "image": done})

    def __enter__(self) -> "ImageWatch":
        try:
            self._begin()
        except (CephfitError, KeyError, TypeError, ValueError) as error:
            self._give_up(f"the manager does not count images' I/O: {_words(error)}")
        if self._admin is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._admin is None:
            return
        self._over.set()
        self._thread.join()
        if kind is None and not self._fault:
            self._await_reports()
        self._admin.close()

    def _begin(self) -> None:
        for name, client in self._clients.items():
            if is_image(client):
                self._images[name] = image_of(client)
        if not self._images:
            return
        clients = [self._clients[name] for name in self._images]
        admin = self._admin = admin_of(clients)
        if admin is None:
            self._fault = "the clients are not of one cluster that could be asked"
            return
        self._period_seconds = _period_of(admin)
        least_seconds = LEAST_PERIODS * self._period_seconds
        if self._run_seconds < least_seconds:
            self._give_up(
                f"OSDs report images' I/O every {self._period_seconds:g} s, and only {self._run_seconds:g} s were "
                f"measured: from {least_seconds:g} s on the two would be compared"
            )
            return
        for name, image in self._images.items():
            if why := _why_other_bytes(admin, image):
                self._why_not[name] = why
        self._read()
        # The OSDs hear of a first question from the manager, which takes milliseconds; nothing is to be missed.
        time.sleep(_TOLD_PERIODS * self._period_seconds)

    def _give_up(self, why: str) -> None:
        self._fault = why
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _read(self) -> None:
        found: dict[tuple[str, str], ImageIo] = {}
        for pool in dict.fromkeys(image.pool for image in self._images.values()):
            assert self._admin is not None, "only what is watched is read"
            found |= parse(self._admin.tell("mgr", COMMAND, pool_spec=pool))
        self._times.append(time.monotonic())
        for name, image in self._images.items():
            self._series.setdefault(name, []).append(found.get((image.pool, image.name), ImageIo()))

    def _try_to_read(self) -> None:
        try:
            self._read()
        except (CephfitError, KeyError, TypeError, ValueError) as error:
            self._fault = f"the manager ceased to count images' I/O: {_words(error)}"

    def _read_until_over(self) -> None:
        while not self._fault and not self._over.wait(self._period_seconds / 2):
            self._try_to_read()

    def _await_reports(self) -> None:
        quiet_seconds = max(_QUIET_PERIODS * self._period_seconds, self._period_seconds + _BUSY_SECONDS)
        quiet_since = time.monotonic()

        def look() -> str:
            nonlocal quiet_since
            self._try_to_read()
            if self._fault:
                return ""
            if any(series[-1] != series[-2] for series in self._series.values()):
                quiet_since = time.monotonic()
            return "reports may come" if time.monotonic() < quiet_since + quiet_seconds else ""

        wait_until_clear(look, seconds=4 * quiet_seconds, poll_seconds=self._period_seconds / 4)


def is_image(client: Client) -> bool:
    """Whether a program of this machine opens the client's volume through librbd."""
    return client.device is None and client.address is None and "rbdname" in client.fio_options


def _period_of(admin: CephAdmin) -> float:
    """Seconds between reports; the active manager runs with it and tells the OSDs."""
    name = admin.command("mgr dump")["active_name"]
    said = admin.command("config show", who=f"mgr.{name}", key="mgr_stats_period")
    return float(said) if said else _USUAL_PERIOD_SECONDS


def _why_other_bytes(admin: RadosAdmin, image: Image) -> str:
    """Why the OSDs see other bytes than the program that uses the image; empty if they see the same."""
    rados, rbd, cluster = optional_module("rados"), optional_module("rbd"), admin.cluster
    if str(cluster.conf_get("rbd_cache")).lower() in ("true", "1", "yes"):
        policy = cluster.conf_get("rbd_cache_policy") or "writeback"  # the only one before there was a choice
        if policy not in _THROUGH:
            return f"librbd's cache ({policy}) answers and gathers I/O on its own, so OSDs count something else"
    if (cluster.conf_get("rbd_persistent_cache_mode") or "disabled") != "disabled":
        return "librbd's persistent cache takes writes before the OSDs do"
    try:
        with cluster.open_ioctx(image.pool) as ioctx, rbd.Image(ioctx, image.name, read_only=True) as opened:
            if opened.features() & rbd.RBD_FEATURE_JOURNALING:
                return "OSDs count an image's journal with its data"
    except (rados.Error, rbd.Error) as error:
        return f"the image cannot be looked at: {error}"
    return ""


def _words(error: Exception) -> str:
    return error.what if isinstance(error, CephfitError) else repr(error)
