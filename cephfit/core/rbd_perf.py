"""Answers of the manager's commands `rbd perf image stats` and `rbd perf image counters`.

src/pybind/mgr/rbd_support/perf.py of Ceph writes them. Latencies are nanoseconds.
"""

from collections.abc import Mapping
from typing import Any

from cephfit.core.values.image_io import ImageName, IoCounts, Reading

MOST_IMAGES = 64
"""Number of images that the manager lists at most, those with most I/O first."""
PERF_VALUES = ("read_ops", "write_ops", "read_bytes", "write_bytes", "read_latency", "write_latency")
"""The values of an image, in the order of ``IoCounts``."""


def image_values(answer: Mapping[str, Any], kind: str) -> dict[ImageName, dict[str, float]]:
    """Return the values of each image by their names.

    A deleted image is listed for some minutes more. The values of a new image with the same name are added.

    Args:
        answer: of the command.
        kind: ``stat`` for rates, ``counter`` for counters.

    Raises:
        KeyError, TypeError, ValueError: the answer has another form.
    """
    names = [str(name) for name in answer[f"{kind}_descriptors"]]
    found: dict[ImageName, dict[str, float]] = {}
    for row in answer[f"{kind}s"]:
        for key, values in row.items():  # one entry, such as "0/volume": [...]
            number, _, image = str(key).partition("/")
            pool, _, namespace = str(answer["pool_descriptors"][number]).partition("/")
            sums = found.setdefault(ImageName(pool, namespace, image), dict.fromkeys(names, 0.0))
            for name, value in zip(names, values, strict=True):
                sums[name] += float(value)
    return found


def counters_reading(answer: Mapping[str, Any]) -> Reading:
    """Return the counters of `rbd perf image counters` at the manager's time.

    Raises:
        KeyError, TypeError, ValueError: the answer has another form.
    """
    images = image_values(answer, "counter")
    return Reading(
        seconds=float(answer["timestamp"]),
        images={name: IoCounts(*(values[n] for n in PERF_VALUES)) for name, values in images.items()},
        is_complete=len(images) < MOST_IMAGES,
    )
