"""Saved counters of images: JSON of `rbd perf image iostat`, and scrapes of ceph-mgr's module `prometheus`.

`rbd perf image iostat` writes a list of images with rates over the manager's last period, without a time
(src/tools/rbd/action/Perf.cc of Ceph). `ceph tell mgr rbd perf image stats`, or `counters`, gives an object with a
time, and rates or counters (src/pybind/mgr/rbd_support/perf.py). Latencies are nanoseconds.

The module `prometheus` (src/pybind/mgr/prometheus/module.py of Ceph) gives for each image of ``rbd_stats_pools``
the counters ``ceph_rbd_{read,write}_{ops,bytes}`` and ``ceph_rbd_{read,write}_latency_{sum,count}``, with the
labels ``pool``, ``namespace`` and ``image``. The help text calls the latencies milliseconds, but OSDs count
nanoseconds (src/osd/DynamicPerfStats.h). ``ceph_pool_*`` and ``ceph_osd_op_*`` count the clients' I/O of pools and
OSDs.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from cephfit.core.errors import InputError
from cephfit.core.values.image_io import (
    MOST_COUNTED,
    MOST_IMAGES,
    PERF_VALUES,
    SHORTEST_SECONDS,
    FleetLoad,
    ImageLoad,
    ImageName,
    IoCounts,
    Reading,
    counters_reading,
    image_values,
    load_between,
)

PERIOD_SECONDS = 5.0
"""Seconds of a rate: Ceph's default of ``mgr_stats_period``."""
_REMEDY = (
    "save the output of `rbd perf image iostat --format json POOL`, once or several times, in one file or more"
)


def documents(text: str, *, where: str) -> list[Any]:
    """Return the JSON documents of a text, which follow each other with or without white space.

    Raises:
        InputError: a document is not JSON; names its line.
    """
    decoder = json.JSONDecoder()
    found = []
    place = 0
    while (place := _after_space(text, place)) < len(text):
        try:
            document, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, place) + 1
            raise InputError(f"not JSON: {error}", where=f"{where}:{line}", remedy=_REMEDY) from None
        found.append(document)
    return found


def _after_space(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def load_of(saved: Sequence[tuple[str, Any]], *, interval_seconds: float | None) -> FleetLoad:
    """Return the I/O of images from documents in their order in time.

    Args:
        saved: the origin of each document, and the document.
        interval_seconds: between documents; None for ``PERIOD_SECONDS``. Counters have their own times.

    Raises:
        InputError: a document has another form, they are of different kinds, or there is no image.
    """
    kinds = {_kind(document, where) for where, document in saved}
    source = ", ".join(dict.fromkeys(where for where, _ in saved))
    if len(kinds) > 1:
        raise InputError(
            "rates and counters cannot be used together", where=source, remedy="give one kind of file"
        )
    try:
        if kinds == {"counters"}:
            readings = [_counters(document, where) for where, document in saved]
            return load_between(readings, source=source, shortest_seconds=SHORTEST_SECONDS)
        return _load_of_rates([(where, _rates(document)) for where, document in saved], source, interval_seconds)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(
            f"this is not the output of `rbd perf image iostat`: {error!r:.100}", where=source, remedy=_REMEDY
        ) from None


def _kind(document: Any, where: str) -> str:
    if isinstance(document, list) and all(isinstance(row, dict) and "image" in row for row in document):
        return "rates"
    if isinstance(document, dict) and "stat_descriptors" in document:
        return "rates"
    if isinstance(document, dict) and "counter_descriptors" in document:
        return "counters"
    raise InputError("this JSON is not the output of `rbd perf image iostat`", where=where, remedy=_REMEDY)


def _counters(document: Any, where: str) -> Reading:
    """Return the counters of a document.

    Raises:
        InputError: a value is not a counter.
    """
    found = counters_reading(document)
    for image, counts in found.images.items():
        if not all(0 <= value < MOST_COUNTED for value in astuple(counts)):
            raise InputError(
                f"a counter of image {image} is not a number from 0 to 2^64", where=where, remedy=_REMEDY
            )
    return found


def _rates(document: Any) -> dict[ImageName, dict[str, float]]:
    if isinstance(document, dict):
        return image_values(document, "stat")
    return {
        ImageName(str(row["pool"]), str(row.get("pool_namespace", "")), str(row["image"])): {
            name: float(row[name]) for name in PERF_VALUES
        }
        for row in document
    }


def _counts(values: Mapping[str, float], factor: float) -> IoCounts:
    if not all(0 <= values[name] < MOST_COUNTED for name in PERF_VALUES):
        raise ValueError(f"a value is not a number from 0 to 2^64: {dict(values)}")
    return IoCounts(*(factor * values[name] for name in PERF_VALUES))


def _load_of_rates(
    samples: Sequence[tuple[str, Mapping[ImageName, Mapping[str, float]]]], source: str, seconds: float | None
) -> FleetLoad:
    length = seconds or PERIOD_SECONDS
    images: dict[ImageName, tuple[IoCounts, list[float]]] = {}
    for i, (_, sample) in enumerate(samples):
        for name, rates in sample.items():
            counts = _counts(rates, length)
            # Latencies are means per operation here.
            sums = (counts.reads * rates["read_latency"], counts.writes * rates["write_latency"])
            counts = IoCounts(counts.reads, counts.writes, counts.read_nbytes, counts.written_nbytes, *sums)
            before, per = images.get(name, (IoCounts(), [0.0] * len(samples)))
            per[i] += counts.operations
            images[name] = (before.plus(counts), per)
    notes = [
        f"each of the {len(samples)} samples is taken for {length:g} s; rates do not depend on it, the busiest "
        "minute does"
    ]
    if any(len(sample) >= MOST_IMAGES for _, sample in samples):
        notes.append(f"the manager lists at most {MOST_IMAGES} images: less busy ones may be missing")
    return FleetLoad(
        source,
        (length,) * len(samples),
        tuple(ImageLoad(name, counts, tuple(per)) for name, (counts, per) in sorted(images.items())),
        notes=tuple(notes),
    )


_IMAGE = {
    "ceph_rbd_read_ops": "reads",
    "ceph_rbd_write_ops": "writes",
    "ceph_rbd_read_bytes": "read_nbytes",
    "ceph_rbd_write_bytes": "written_nbytes",
    "ceph_rbd_read_latency_sum": "read_latency_ns",
    "ceph_rbd_write_latency_sum": "write_latency_ns",
}
_POOL = {
    "ceph_pool_rd": "reads",
    "ceph_pool_wr": "writes",
    "ceph_pool_rd_bytes": "read_nbytes",
    "ceph_pool_wr_bytes": "written_nbytes",
}
_OSD = {
    "ceph_osd_op_r": "reads",
    "ceph_osd_op_w": "writes",
    "ceph_osd_op_r_out_bytes": "read_nbytes",
    "ceph_osd_op_w_in_bytes": "written_nbytes",
}
_COUNTERS = frozenset((*_IMAGE, *_POOL, *_OSD))
_NEEDED = ("ceph_rbd_read_ops", "ceph_rbd_write_ops", "ceph_rbd_read_bytes", "ceph_rbd_write_bytes")
COUNT_IMAGES = 'ceph config set mgr mgr/prometheus/rbd_stats_pools "POOL1,POOL2"'
"""The command that makes the module count images; it names the pools to count."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """One scrape.

    Attributes:
        reading: its counters; ``seconds`` is 0 if the text has no times.
        is_timed: whether the text has times: those of a federated Prometheus have, those of ceph-mgr have not.
    """

    reading: Reading
    is_timed: bool


def parse_scrape(text: str, *, where: str) -> Scrape:
    """Parse one scrape.

    Raises:
        InputError: it is not in the text format, not from ceph-mgr, or has no counters of images.
    """
    images: dict[ImageName, dict[str, float]] = {}
    totals: dict[str, dict[str, float]] = {}
    pools: dict[str, str] = {}
    times: Counter[float] = Counter()
    n_ceph = 0
    for name, labels, value, time in _samples(text, where):
        n_ceph += name.startswith("ceph_")
        if name == "ceph_pool_metadata":
            pools[labels.get("pool_id", "")] = labels.get("name", "")
        elif name in _IMAGE and "image" in labels:
            image = ImageName(labels.get("pool", ""), labels.get("namespace", ""), labels["image"])
            _add(images.setdefault(image, {}), _IMAGE[name], value)
            if time is not None:
                times[time] += 1
        elif name in _POOL:
            _add(totals.setdefault(f"pool {labels.get('pool_id', '')}", {}), _POOL[name], value)
        elif name in _OSD:
            _add(totals.setdefault(labels.get("ceph_daemon", "osd"), {}), _OSD[name], value)
    if not images:
        raise _no_images(n_ceph, where)
    for image, counts in images.items():
        lacking = [n for n in _NEEDED if _IMAGE[n] not in counts]
        if lacking:
            raise InputError(
                f"image {image} has no {' and no '.join(lacking)}",
                where=where,
                remedy="keep all metrics whose names begin with ceph_rbd_",
            )
    named = {f"pool {number}": f"pool {name}" for number, name in pools.items() if name}
    reading = Reading(
        seconds=times.most_common(1)[0][0] if times else 0.0,
        images={name: _image_counts(counts) for name, counts in images.items()},
        totals={named.get(name, name): IoCounts(**counts) for name, counts in totals.items()},
    )
    return Scrape(reading, bool(times))


def _samples(text: str, where: str) -> Iterator[tuple[str, Mapping[str, str], float, float | None]]:
    """Yield name, labels, value and time in seconds of all samples.

    Raises:
        InputError: the text is in another format, or the value of a counter is none.
    """
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                # The parser adds the suffix that OpenMetrics requires of counters.
                name = sample.name.removesuffix("_total")
                time = None if sample.timestamp is None else float(sample.timestamp)
                value = float(sample.value)
                if name in _COUNTERS and not 0 <= value < MOST_COUNTED:
                    raise _no_counter(name, value, text, where)
                yield name, sample.labels, value, time
    except InputError:
        raise
    except (ValueError, KeyError, IndexError) as error:
        raise InputError(
            f"this is not the text format of Prometheus: {str(error) or repr(error):.200}",
            where=where,
            remedy="save a scrape of ceph-mgr: curl -s http://MGR:9283/metrics -o FILE",
        ) from None


def _no_counter(name: str, value: float, text: str, where: str) -> InputError:
    """Return the error on the first line with this value of a metric."""
    lines = enumerate(text.splitlines(), start=1)
    own = ((n, line) for n, line in lines if line.startswith(name) and line[len(name) :][:1] in ("{", " ", "\t"))
    for number, line in own:
        samples = [s for family in text_string_to_metric_families(line) for s in family.samples]
        if any(str(float(s.value)) == str(value) for s in samples):
            where = f"{where}:{number}"
            break
    return InputError(
        f"{value:g} is not a value of the counter {name}: it is a number from 0 to 2^64",
        where=where,
        remedy="save the scrape again; if the file was made from recording rules, use the counters themselves",
    )


def _add(counts: dict[str, float], name: str, value: float) -> None:
    counts[name] = counts.get(name, 0.0) + value


def _image_counts(counts: Mapping[str, float]) -> IoCounts:
    unknown = {"read_latency_ns": float("nan"), "write_latency_ns": float("nan")}
    return IoCounts(**{**unknown, **counts})


def _no_images(n_ceph: int, where: str) -> InputError:
    if not n_ceph:
        return InputError(
            "the text has no metric of Ceph",
            where=where,
            remedy="scrape ceph-mgr, not another exporter: curl -s http://MGR:9283/metrics; "
            "`ceph mgr services` names the address",
        )
    return InputError(
        "the text has no counters of images (ceph_rbd_*), only of daemons and pools",
        where=where,
        remedy=f"let ceph-mgr count them, then scrape it twice: {COUNT_IMAGES}",
    )
