"""RBD images: those of sweeps, with a marker once they are filled, and the I/O of all images of a live cluster.

The counters of images are those behind `rbd perf image iostat` and `iotop`; reading them changes nothing. After
the first query, OSDs count the operations on the data objects of images, and report once per period
(``mgr_stats_period``: 5 s). The manager adds them up, and stops a minute after the last query. Nothing is sampled:
differences of counters miss no operation, except at both ends of the time, to within two periods.
"""

import errno
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.options.option import as_ceph_writes
from cephfit.ceph.pools.pool_plan import data_pool_name
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.optional_modules import optional_module
from cephfit.core.protocols import CephAdmin
from cephfit.core.units import format_nbytes, parse_nbytes
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.core.values.image_io import ImageName, IoCounts, Reading, counters_reading

_FILLED = "cephfit.filled"
_FEATURES = {
    "layering": 1 << 0,
    "striping": 1 << 1,
    "exclusive-lock": 1 << 2,
    "object-map": 1 << 3,
    "fast-diff": 1 << 4,
    "deep-flatten": 1 << 5,
    "journaling": 1 << 6,
}
"""Bits of an image's header (Ceph's ``include/rbd/features.h``)."""
_DATA_POOL = 1 << 7
_IMPLIED = _FEATURES["striping"] | _DATA_POOL
"""Features that follow from other settings."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A client's RBD image.

    Attributes:
        pool: that holds it.
        image: its name there.
        nbytes: its size.
    """

    pool: str
    image: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.pool}/{self.image}"


def image_settings(configuration: Configuration) -> tuple[Setting, ...]:
    """Return the image settings of a configuration."""
    return tuple(s for s in configuration.within(Partition.POOL) if s.scope == "image")


def image_name(configuration: Configuration, client: str, nbytes: int, *, filled: bool) -> str:
    """Name an image after its configuration, a digest of the settings, the client, the size and the purpose.

    The digest distinguishes configurations of the same name in different sweep files: the data on the disks
    depends on the settings under which it was written. A workload never uses the benchmark's filled volumes.
    """
    text = "\n".join(map(str, configuration.settings))
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    safe = "".join(c if c.isalnum() or c in "-_" else "-" for c in configuration.name)
    return f"{safe}.{digest}.{client}.{format_nbytes(nbytes)}.{'bench' if filled else 'workload'}"


_WATCHED_SECONDS, _WATCHED_POLL_SECONDS = 40.0, 0.5
"""OSDs take the watch of a client that no longer answers for ended after 30 s (``osd_client_watch_timeout``)."""


class _NoSuchPoolError(ClusterError):
    """The cluster has no pool of this name."""


class Volumes:
    """Creates images and keeps notes on them. The images are in cephfit's pools and are deleted with the pool."""

    def __init__(self, admin: RadosAdmin) -> None:
        self._rados, self._rbd = optional_module("rados"), optional_module("rbd")
        self._admin = admin

    def ensure(self, configuration: Configuration, volume: Volume) -> None:
        """Create the image with the configuration's image settings unless it exists.

        Raises:
            InputError: an image setting is impossible.
            ClusterError: librbd refuses.
        """
        required = _creation_options(configuration)
        with self._pool(volume.pool) as ioctx, self._refusals(volume):
            if volume.image in self._rbd.RBD().list(ioctx):
                try:
                    self._rbd.Image(ioctx, volume.image, read_only=True).close()
                    return
                except self._rbd.ImageNotFound:  # a process that was killed has created a part of it
                    self._rbd.RBD().remove(ioctx, volume.image)
            self._rbd.RBD().create(ioctx, volume.image, volume.nbytes, old_format=False, **required)

    def remove(self, volume: Volume) -> None:
        """Delete the image if it exists; it is gone with its pool. A killed client has it open for half a minute.

        Raises:
            ClusterError: a client has it open.
        """
        until = time.monotonic() + _WATCHED_SECONDS
        with (
            suppress(_NoSuchPoolError),
            self._pool(volume.pool) as ioctx,
            self._refusals(volume),
            suppress(self._rbd.ImageNotFound),
        ):
            while True:
                try:
                    self._rbd.RBD().remove(ioctx, volume.image)
                    return
                except self._rbd.ImageBusy:
                    if time.monotonic() > until:
                        raise
                time.sleep(_WATCHED_POLL_SECONDS)

    def empty_namespace(self, pool: str, namespace: str) -> None:
        """Delete all objects of a namespace; they are gone with their pool."""
        with suppress(_NoSuchPoolError), self._pool(pool) as ioctx:
            ioctx.set_namespace(namespace)
            for found in list(ioctx.list_objects()):
                with suppress(self._rados.ObjectNotFound):
                    ioctx.remove_object(found.key)

    def exists(self, volume: Volume) -> bool:
        with self._pool(volume.pool) as ioctx, self._refusals(volume):
            return volume.image in self._rbd.RBD().list(ioctx)

    def is_filled(self, volume: Volume) -> bool:
        """Return whether this image was filled to its end."""
        return self.note_on(volume, _FILLED) == str(volume.nbytes)

    def mark_filled(self, volume: Volume) -> None:
        self.set_note(volume, _FILLED, str(volume.nbytes))

    def note_on(self, volume: Volume, key: str) -> str | None:
        """Read a note from the image's metadata."""
        with self._image(volume) as image:
            try:
                return str(image.metadata_get(key))
            except KeyError:
                return None

    def set_note(self, volume: Volume, key: str, text: str | None) -> None:
        """Write a note to the image's metadata, or remove it (None)."""
        with self._image(volume) as image:
            if text is not None:
                image.metadata_set(key, text)
            elif key in dict(image.metadata_list()):
                image.metadata_remove(key)

    def read_back(
        self, configuration: Configuration, volumes: tuple[Volume, ...]
    ) -> tuple[dict[str, dict[str, Any]], list[str]]:
        """Read the images' values: setting (as text) to image to value, and one sentence per mismatch."""
        values: dict[str, dict[str, Any]] = {}
        mismatches = []
        for volume in volumes:
            with self._image(volume) as image:
                found = {
                    "object_size": image.stat()["obj_size"],
                    "stripe_unit": image.stripe_unit(),
                    "stripe_count": image.stripe_count(),
                    "features": image.features(),
                }
                data_pool = self._pool_named(image.data_pool_id())
            required = data_pool_name(configuration)
            if required is not None and required != data_pool:
                mismatches.append(f"the data of image {volume} is in pool {data_pool}, not {required}")
            for setting in image_settings(configuration):
                got = found[setting.key]
                if setting.key == "features":
                    is_same = got & ~_IMPLIED == _feature_bits(str(setting.value))
                    got = ",".join(n for n, bit in _FEATURES.items() if got & bit)
                else:
                    is_same = got == parse_nbytes(as_ceph_writes(setting.value))
                values.setdefault(str(setting), {})[str(volume)] = got
                if not is_same:
                    mismatches.append(f"image {volume} has {setting.key} = {got}, not {setting.value}")
        return values, mismatches

    def _pool_named(self, number: int) -> str:
        name: str = self._admin.cluster.pool_reverse_lookup(number)
        return name

    @contextmanager
    def _pool(self, name: str) -> Iterator[Any]:
        try:
            # The connection's map may still have a deleted pool of this name, which has another number.
            self._admin.cluster.wait_for_latest_osdmap()
            ioctx = self._admin.cluster.open_ioctx(name)
        except self._rados.ObjectNotFound:
            raise _NoSuchPoolError(
                "this cluster has no such pool",
                where=f"pool {name}",
                remedy="it was deleted meanwhile: run `cephfit restore`, then begin again",
            ) from None
        except self._rados.Error as error:
            raise ClusterError(f"librados refused: {error}", where=f"pool {name}") from None
        try:
            yield ioctx
        finally:
            ioctx.close()

    @contextmanager
    def _image(self, volume: Volume) -> Iterator[Any]:
        with (
            self._pool(volume.pool) as ioctx,
            self._refusals(volume),
            self._rbd.Image(ioctx, volume.image) as image,
        ):
            yield image

    @contextmanager
    def _refusals(self, volume: Volume) -> Iterator[None]:
        try:
            yield
        except self._rbd.Error as error:
            raise ClusterError(f"librbd refused: {error}", where=f"image {volume}") from None


def _creation_options(configuration: Configuration) -> Mapping[str, Any]:
    options: dict[str, Any] = {}
    if (data_pool := data_pool_name(configuration)) is not None:
        options["data_pool"] = data_pool
    for setting in image_settings(configuration):
        where = f"configuration {configuration.name}, {setting.key}"
        if setting.key == "features":
            options["features"] = _feature_bits(str(setting.value), where=where)
            continue
        number = parse_nbytes(as_ceph_writes(setting.value), where=where)
        if setting.key == "object_size":
            if number < 4096 or number & (number - 1):
                raise InputError(f"an object size is a power of two from 4K, not {setting.value}", where=where)
            options["order"] = number.bit_length() - 1
        else:
            options[setting.key] = number
    return options


def _feature_bits(text: str, *, where: str = "") -> int:
    bits = 0
    for name in filter(None, (n.strip() for n in text.split(","))):
        if name not in _FEATURES:
            raise InputError(
                f"RBD has no image feature {name!r}", where=where, remedy=f"features are {', '.join(_FEATURES)}"
            )
        bits |= _FEATURES[name]
    return bits


PERIOD_SECONDS = 5.0
"""Default of ``mgr_stats_period``."""
LONGEST_INTERVAL_SECONDS = 55.0
"""The manager stops counting a minute after the last query."""
_COMMAND = "rbd perf image counters"
_ORDERS = ("write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency")


def rbd_pools(admin: CephAdmin) -> list[str]:
    """Return the names of pools with the application ``rbd``.

    Raises:
        ClusterError: the cluster does not answer.
        InputError: there is none.
    """
    pools = admin.command("osd dump")["pools"]
    names = [str(p["pool_name"]) for p in pools if "rbd" in p.get("application_metadata", {})]
    if not names:
        raise InputError(
            "the cluster has no pool with the application rbd, so it has no images",
            remedy="mark the pools of images: ceph osd pool application enable POOL rbd",
        )
    return names


def readings(
    admin: CephAdmin,
    *,
    seconds: float,
    interval_seconds: float,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Reading]:
    """Yield readings of all images' counters: one now, and one after each interval.

    Args:
        admin: of the cluster.
        seconds: the whole time.
        interval_seconds: between readings, at most ``LONGEST_INTERVAL_SECONDS``.
        wait: sleeps for so many seconds.
        clock: a rising time in seconds.

    Raises:
        ClusterError: the cluster does not answer, or its manager does not count images.
        InputError: there is no pool of images.
    """
    pools = rbd_pools(admin)
    _read(admin, pools)  # makes the OSDs begin to count
    start = clock()
    n = max(1, round(seconds / interval_seconds))
    for i in range(n + 1):
        if i:
            wait(max(0.0, start + i * seconds / n - clock()))
        images, is_complete = _read(admin, pools)
        yield Reading(clock(), images, _pool_counts(admin), is_complete)


def _read(admin: CephAdmin, pools: list[str]) -> tuple[dict[ImageName, IoCounts], bool]:
    """Return the counters of all images, and whether images that are not listed had no I/O."""
    found: dict[ImageName, IoCounts] = {}
    # The query without a pool sees images in all namespaces, but few of a large cluster.
    everywhere = _answer(admin, _ORDERS[0], {})
    found.update((name, io) for name, io in everywhere.images.items() if name.namespace)
    is_complete = everywhere.is_complete or not found
    for pool in pools:
        first = _answer(admin, _ORDERS[0], {"pool_spec": pool})
        found.update(first.images)
        if not first.is_complete:
            # Other orders list other images.
            is_complete = False
            for order in _ORDERS[1:]:
                found.update(_answer(admin, order, {"pool_spec": pool}).images)
    return found, is_complete


def _answer(admin: CephAdmin, order: str, where: dict[str, str]) -> Reading:
    try:
        # Through a monitor the manager does not know the caller's key and refuses.
        answer: Any = admin.tell("mgr", _COMMAND, **where, sort_by=order)
        return counters_reading(answer)
    except RefusedError as error:
        raise _explained(error) from None
    except (KeyError, TypeError, ValueError) as error:
        raise ClusterError(
            f"the manager's answer has an unknown form: {error!r:.100}", where=f"`{_COMMAND}`"
        ) from None


def _explained(error: RefusedError) -> ClusterError:
    remedy = error.remedy
    if error.code in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOENT):
        remedy = "the manager's module counts images: ceph mgr module enable rbd_support"
    elif error.code in (errno.EACCES, errno.EPERM):
        remedy = "the key lacks the capability mgr 'allow r' (docs/capabilities.md)"
    return ClusterError(error.what, where=error.where, remedy=remedy)


def _pool_counts(admin: CephAdmin) -> dict[str, IoCounts]:
    """Return the client I/O of pools since their creation."""
    pools = admin.command("df", detail="detail")["pools"]
    return {
        f"pool {pool['name']}": IoCounts(
            *(float(pool["stats"].get(key, 0)) for key in ("rd", "wr", "rd_bytes", "wr_bytes"))
        )
        for pool in pools
    }
