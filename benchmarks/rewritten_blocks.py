"""Writes to the same few blocks: what they get from a cluster, next to writes all over a volume.

    python benchmarks/rewritten_blocks.py                  print the table of docs/evidence.md from kept data
    python benchmarks/rewritten_blocks.py measure CONF     measure the rates again, on a lab of three hosts

A log writes its newest block again and again, and a journal goes round in a small area. To measure it again, use a
new lab with nothing else running (`cephfit lab up --name rewrites --hosts 3`), Debian's Python and its ceph.conf.
"""

import csv
import math
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from typing import Any

from alternating_streams import DATA, OBJECT, VOLUME, filled_volumes, keep, per_second

RATES = DATA / "rewritten_blocks.csv"
POOLS = {"one": (1, "hdd"), "two": (2, "hdd"), "three": (3, "hdd"), "ssd": (2, "ssd")}
"""Copies, and device class, of each pool."""
AREAS = (16 << 10, 256 << 10, 4 << 20, 32 << 20, VOLUME)
ORDERS = ("sequential", "random")
N_VOLUMES, WARM_UP_SECONDS, SECONDS = 3, 0.5, 1.3


def rate(image: Any, nbytes: int, area: int, order: str, choice: random.Random) -> float:
    """Return the writes per second of one client within a part of the volume, with one write outstanding."""
    begin = choice.randrange(VOLUME // max(area, OBJECT)) * max(area, OBJECT)
    places, block = area // nbytes, b"x" * nbytes
    first = choice.randrange(places)

    def write(n: int) -> None:
        at = choice.randrange(places) if order == "random" else (first + n) % places
        image.write(block, begin + at * nbytes)

    return per_second(write, warm_up_seconds=WARM_UP_SECONDS, seconds=SECONDS)


def measured(conf: str) -> Iterator[tuple[int, str, int, int, str, float]]:
    """Yield volume, pool, bytes, area, order and rate of each run."""
    choice = random.Random(2017)
    for volume, pool, image in filled_volumes(conf, POOLS, N_VOLUMES):
        for nbytes in (4 << 10, 16 << 10):
            kinds = list(product(AREAS, ORDERS))
            for area, order in choice.sample(kinds, len(kinds)):
                yield volume, pool, nbytes, area, order, rate(image, nbytes, area, order, choice)


def print_rates() -> None:
    logs: dict[tuple[str, ...], list[float]] = defaultdict(list)
    with RATES.open() as stream:
        for row in csv.DictReader(stream):
            key = row["nbytes"], row["order"], row["area"], row["pool"]
            logs[key].append(math.log(float(row["per_second"])))
    print("| writes | within | " + " | ".join(POOLS) + " |\n|---" + "|---" * (1 + len(POOLS)) + "|")
    for nbytes, order, area in product(("4096", "16384"), ORDERS, map(str, AREAS)):
        rates = [math.exp(sum(x := logs[nbytes, order, area, pool]) / len(x)) for pool in POOLS]
        what = f"{int(nbytes) >> 10}K {order}", f"{int(area) >> 10:,} KiB"
        print("|", " | ".join((*what, *(f"{found:.0f}" for found in rates))), "|")


def main() -> None:
    if sys.argv[1:2] == ["measure"]:
        keep(RATES, ("volume", "pool", "nbytes", "area", "order"), measured(sys.argv[2]))
        return
    print_rates()


if __name__ == "__main__":
    main()
