"""Saved JSON of `rbd perf image iostat --format json`, and of the manager's own commands behind it.

`rbd perf image iostat` writes a list of images with rates over the manager's last period, without a time
(src/tools/rbd/action/Perf.cc of Ceph). `ceph tell mgr rbd perf image stats`, or `counters`, gives an object with a
time, and rates or counters (src/pybind/mgr/rbd_support/perf.py). Latencies are nanoseconds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

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
