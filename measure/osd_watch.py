"""The OSDs' counts of clients' I/O during a run, as its independent count: of all pools, and of single images.

The counters of single images (``rbd perf image counters``) come from the manager's module ``rbd_support``; `rbd
perf image iostat` and `iotop` show their rates. After the first query, every OSD counts the bytes that operations
on an image's data objects moved. It reports them once per period (``mgr_stats_period``: 5 s; a lab: 1 s), and the
manager adds them up. The manager stops counting a minute after the last query. Nothing is sampled and nothing is
lost: two periods after the last I/O the sum is exact. The time of the I/O is known to two periods only, because
each OSD reports at its own time. Short runs are too short for that.

The counted operations are those of OSDs: a block that spans several objects causes several. So bytes are compared.
"""

import bisect
import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from cephfit.ceph.admin.answers import osds_up
from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.core.errors import CephfitError
from cephfit.core.optional_modules import optional_module
from cephfit.core.protocols import CephAdmin, Client
from cephfit.core.values.cells import Op
from cephfit.core.values.image_io import image_values
from cephfit.core.waiting import wait_until_clear
from cephfit.measure.bench_process import Image, image_of
from cephfit.measure.block_device import window_count
from cephfit.measure.engine import ClientOutcome, IndependentCount
from cephfit.measure.fio.fio_files import CONF_OPTION
from cephfit.measure.telemetry.osd_counters import OsdCounters, counters_of_osd


@dataclass(slots=True)
class OsdCount:
    """Bytes that client operations moved between two moments, over all OSDs and clients of the cluster.

    Attributes:
        read_nbytes: None where there is no count.
        written_nbytes: likewise.
        why_not: reason why there is no count.
    """

    read_nbytes: int | None = None
    written_nbytes: int | None = None
    why_not: str = ""

    def nbytes(self, op: Op) -> int | None:
        return self.read_nbytes if op is Op.READ else self.written_nbytes


@dataclass(slots=True)
class OsdWatch:
    """Holds ``count``, which is set at the end of the ``with`` block."""

    count: OsdCount


@contextmanager
def watch_osds(clients: Sequence[Client]) -> Iterator[OsdWatch]:
    """Count the OSDs' I/O while the block runs. A missing count is no error: it carries the reason."""
    watch = OsdWatch(OsdCount(why_not="the clients do not belong to one cluster that can be queried"))
    admin = None
    try:
        try:
            admin = admin_of(clients)
            before = _counters(admin) if admin is not None else {}
        except CephfitError as error:
            watch.count = OsdCount(why_not=f"the OSDs could not be queried: {error.what}")
            before = {}
        yield watch
        if admin is not None and before:
            watch.count = _difference(admin, before)
    finally:
        if admin is not None:
            admin.close()


def admin_of(clients: Sequence[Client]) -> RadosAdmin | None:
    """Connect to the clients' cluster with their key; None where they do not share one cluster.

    Raises:
        ClusterError: the cluster does not answer.
    """
    reached = {(c.fio_options.get(CONF_OPTION), c.fio_options.get("clientname", "admin")) for c in clients}
    if len(reached) != 1:
        return None
    ((conf, client_id),) = reached
    return RadosAdmin(Path(conf), client_id=client_id) if conf else None


def _counters(admin: CephAdmin) -> dict[int, OsdCounters]:
    """Read the counters of every OSD that is up."""
    return {osd: counters_of_osd(admin, osd) for osd in osds_up(admin)}


def _difference(admin: CephAdmin, before: Mapping[int, OsdCounters]) -> OsdCount:
    try:
        after = _counters(admin)
    except CephfitError as error:
        return OsdCount(why_not=f"the OSDs could not be queried: {error}")
    if set(after) != set(before) or any(_restarted(before[osd], after[osd]) for osd in before):
        return OsdCount(why_not="an OSD was added, removed or restarted in between")
    moved = [after[osd].since(before[osd]) for osd in before]
    return OsdCount(sum(osd.read_nbytes for osd in moved), sum(osd.written_nbytes for osd in moved))


def _restarted(was: OsdCounters, now: OsdCounters) -> bool:
    return now.read_nbytes < was.read_nbytes or now.written_nbytes < was.written_nbytes


SOURCE = "the OSDs, for this image alone (rbd perf image counters)"
COMMAND = "rbd perf image counters"
"""Must be sent to the manager itself: through a monitor it does not know the caller's key and refuses."""


@dataclass(frozen=True, slots=True)
class ImageIo:
    """I/O of an image's data objects since the manager began to count.

    Attributes:
        written_nbytes, read_nbytes: bytes that operations carried, without the replicas.
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
    """Parse the output of ``rbd perf image counters`` into (pool, image) to counters. Pure.

    Raises:
        KeyError, TypeError, ValueError: the output has another form.
    """
    words = ("write_ops", "read_ops", "write_bytes", "read_bytes")
    return {
        ("/".join(filter(None, (name.pool, name.namespace))), name.image): ImageIo(
            *(int(values[w]) for w in words)
        )
        for name, values in image_values(answer, "counter").items()
    }


def image_count(
    times: Sequence[float],
    values: Sequence[int],
    *,
    moved: Sequence[int],
    runtime_ns: int,
    in_flight_nbytes: int,
    period_seconds: float,
) -> IndependentCount:
    """Return the count over the measured time, which ends with the counter's last change. Pure.

    Counters rise in steps, each OSD's at its own time within a period, and the manager is up to another period
    behind. Begin and end are equally late, to within one period. So the bytes that moved within a period of the
    begin may belong to either side of it.

    Args:
        times: seconds, rising, shape (n,), n >= 2.
        values: bytes, never falling, shape (n,).
        moved: bytes in both directions, shape (n,).
        runtime_ns: length of the measured time.
        in_flight_nbytes: upper limit of the bytes in flight when it began.
        period_seconds: interval of reports.
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
"""Shortest run, in report periods: both ends of the window are uncertain by one period, a fifth of that run."""
_USUAL_PERIOD_SECONDS = 5.0
_QUIET_PERIODS = 2.5
"""Periods without a change after which all reports have arrived: one for the OSDs, one for the manager, and half a
period more."""
_BUSY_SECONDS = 3.0
"""Delay of a busy manager."""
_FIRST_QUERY_PERIODS = 0.2
_THROUGH = frozenset({"writearound"})
"""Policies of librbd's cache under which every I/O reaches the OSDs once."""


class ImageWatch:
    """Reads the counters of the clients' images while a ``with`` block runs, and until all reports have arrived.

    A missing count is no error: ``why_not`` returns the reason.

    Args:
        clients: of one run.
        op: the measured direction.
        run_seconds: length of the measured time.
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
        """Return the reason why no independent count exists for a client; empty if one does."""
        if why := self._why_not.get(client.name, self._fault):
            return why
        series = self._series.get(client.name, [])
        if any(now.of(op) < before.of(op) for before, now in itertools.pairwise(series) for op in Op):
            return "the manager restarted its count of the images' I/O in between"
        if len(series) < 2 or series[-1] == series[0]:
            # The PGs of a cache tier or a data pool belong to another pool than the image.
            return "the manager counted nothing for the image: its data are in another pool"
        return ""

    def counted(self, outcome: ClientOutcome, client: Client, *, in_flight_nbytes: int) -> ClientOutcome:
        """Return a client's outcome with its independent count, or the reason why none exists.

        Call it after the ``with`` block.

        Args:
            outcome: of a program that opened the image.
            client: of the image.
            in_flight_nbytes: upper limit of the bytes in flight when the measured time began.
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
            self._fault = "the clients do not belong to one cluster that can be queried"
            return
        self._period_seconds = _period_of(admin)
        least_seconds = LEAST_PERIODS * self._period_seconds
        if self._run_seconds < least_seconds:
            self._give_up(
                f"OSDs report images' I/O every {self._period_seconds:g} s, and only {self._run_seconds:g} s were "
                f"measured: the comparison needs at least {least_seconds:g} s"
            )
            return
        for name, image in self._images.items():
            if why := _why_other_bytes(admin, image):
                self._why_not[name] = why
        self._read()
        # The manager passes the first query to the OSDs within milliseconds. The count must not begin later.
        time.sleep(_FIRST_QUERY_PERIODS * self._period_seconds)

    def _give_up(self, why: str) -> None:
        self._fault = why
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _read(self) -> None:
        found: dict[tuple[str, str], ImageIo] = {}
        for pool in dict.fromkeys(image.pool for image in self._images.values()):
            assert self._admin is not None, "only watched images are read"
            found |= parse(self._admin.tell("mgr", COMMAND, pool_spec=pool))
        self._times.append(time.monotonic())
        for name, image in self._images.items():
            self._series.setdefault(name, []).append(found.get((image.pool, image.name), ImageIo()))

    def _try_to_read(self) -> None:
        try:
            self._read()
        except (CephfitError, KeyError, TypeError, ValueError) as error:
            self._fault = f"the manager stopped counting images' I/O: {_words(error)}"

    def _read_until_over(self) -> None:
        while not self._fault and not self._over.wait(self._period_seconds / 2):
            self._try_to_read()

    def _await_reports(self) -> None:
        quiet_seconds = max(_QUIET_PERIODS * self._period_seconds, self._period_seconds + _BUSY_SECONDS)
        quiet_since = time.monotonic()

        def check() -> str:
            nonlocal quiet_since
            self._try_to_read()
            if self._fault:
                return ""
            if any(series[-1] != series[-2] for series in self._series.values()):
                quiet_since = time.monotonic()
            return "reports may still arrive" if time.monotonic() < quiet_since + quiet_seconds else ""

        wait_until_clear(check, seconds=4 * quiet_seconds, poll_seconds=self._period_seconds / 4)


def is_image(client: Client) -> bool:
    """Return whether a program on this machine opens the client's volume through librbd."""
    return client.device is None and client.address is None and "rbdname" in client.fio_options


def _period_of(admin: CephAdmin) -> float:
    """Return the seconds between reports, an option of the active manager, which passes it to the OSDs."""
    name = admin.command("mgr dump")["active_name"]
    value = admin.command("config show", who=f"mgr.{name}", key="mgr_stats_period")
    return float(value) if value else _USUAL_PERIOD_SECONDS


def _why_other_bytes(admin: RadosAdmin, image: Image) -> str:
    """Return why the OSDs count other bytes than the program that uses the image; empty if they count the same."""
    rados, rbd, cluster = optional_module("rados"), optional_module("rbd"), admin.cluster
    if str(cluster.conf_get("rbd_cache")).lower() in ("true", "1", "yes"):
        policy = cluster.conf_get("rbd_cache_policy") or "writeback"  # the only policy of older releases
        if policy not in _THROUGH:
            return f"librbd's cache ({policy}) serves and merges I/O, so OSDs count other bytes"
    if (cluster.conf_get("rbd_persistent_cache_mode") or "disabled") != "disabled":
        return "librbd's persistent cache takes writes before the OSDs do"
    try:
        with cluster.open_ioctx(image.pool) as ioctx, rbd.Image(ioctx, image.name, read_only=True) as opened:
            if opened.features() & rbd.RBD_FEATURE_JOURNALING:
                return "OSDs count an image's journal with its data"
    except (rados.Error, rbd.Error) as error:
        return f"the image cannot be opened: {error}"
    return ""


def _words(error: Exception) -> str:
    return error.what if isinstance(error, CephfitError) else repr(error)
