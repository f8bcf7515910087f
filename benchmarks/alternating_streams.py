"""Sequential streams that alternate: what they get from a cluster, and how the model `waiting` counts them best.

    python benchmarks/alternating_streams.py                  print the tables of docs/evidence.md from kept data
    python benchmarks/alternating_streams.py measure CONF     measure the rates again, on a lab of three hosts

A program that appends to a log, on a file system with a journal, writes two streams in turn. Each access is far
from the previous one of its op, and close to the one before that. To measure it again, use a new lab with nothing
else running (`cephfit lab up --name streams --hosts 3`), Debian's Python and its ceph.conf. The traces are of
the evaluation's programs, each recorded once on such a lab; their profiles are kept with the accesses of
alternating streams counted as random (`previous`), half and half (`half`), and as sequential (`sequential`).
"""

import csv
import math
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
KEPT = DATA / "alternating"
COUNTED = ("previous", "half", "sequential")
SETS = {
    "evaluation": "first machine",
    "evaluation-equal-work": "second machine, equal work",
    "evaluation-kept-volumes": "volumes kept for both rounds",
    "evaluation-reef": "Ceph 18.2",
    "evaluation-unseen": "other programs, other configurations",
}
POOLS = {"one": (1, "hdd"), "two": (2, "hdd"), "three": (3, "hdd"), "ssd": (2, "ssd")}
"""Copies, and device class, of each pool."""
STREAMS = (1, 2, 4, 0)
"""Numbers of streams; 0: random accesses."""
OBJECT = 4 << 20
VOLUME = 256 << 20
N_VOLUMES, WARM_UP_SECONDS, SECONDS = 6, 0.3, 1.5


def per_second(access: Callable[[int], object], *, warm_up_seconds: float, seconds: float) -> float:
    """Return the accesses per second of one client with one access outstanding; each receives its number."""
    n, counted, begun = 0, None, time.monotonic()
    while (now := time.monotonic()) < begun + warm_up_seconds + seconds:
        if counted is None and now > begun + warm_up_seconds:
            counted = n, now
        access(n)
        n += 1
    assert counted is not None
    return (n - counted[0]) / (time.monotonic() - counted[1])


def keep(path: Path, names: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Write rows, each with a rate at its end, to a CSV file as they are measured."""
    with path.open("w") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow((*names, "per_second"))
        for *what, found in rows:
            writer.writerow((*what, f"{found:.1f}"))
            stream.flush()


def rate(image: Any, op: str, nbytes: int, n_streams: int, choice: random.Random) -> float:
    """Return accesses per second of one client with one access outstanding."""
    places = choice.sample(range(VOLUME // OBJECT), n_streams or 1)
    at = [place * OBJECT + choice.randrange(OBJECT // nbytes // 2) * nbytes for place in places]
    block = b"x" * nbytes

    def access(n: int) -> None:
        if n_streams:
            offset = at[n % n_streams]
            at[n % n_streams] = (offset + nbytes) % VOLUME
        else:
            offset = choice.randrange(VOLUME // nbytes) * nbytes
        if op == "write":
            image.write(block, offset)
        else:
            image.read(offset, nbytes)

    return per_second(access, warm_up_seconds=WARM_UP_SECONDS, seconds=SECONDS)


def filled_volumes(
    conf: str, pools: Mapping[str, tuple[int, str]], n_volumes: int
) -> Iterator[tuple[int, str, Any]]:
    """Create the pools, and yield number, pool and opened image of each volume; each is deleted afterwards.

    Args:
        conf: the lab's ceph.conf.
        pools: copies and device class of each.
        n_volumes: of each pool; the order of the pools is another one for each.
    """
    import rados
    import rbd

    def ceph(*argv: str) -> None:
        subprocess.run(["ceph", "-c", conf, *argv], check=True, capture_output=True)

    ceph("config", "set", "mon", "mon_allow_pool_size_one", "true")
    for device_class in ("hdd", "ssd"):
        ceph("osd", "crush", "rule", "create-replicated", device_class, "default", "host", device_class)
    for pool, (copies, device_class) in pools.items():
        ceph("osd", "pool", "create", pool, "32", "32", "replicated", device_class)
        sure = ["--yes-i-really-mean-it"] if copies == 1 else []
        ceph("osd", "pool", "set", pool, "size", str(copies), *sure)
        ceph("osd", "pool", "application", "enable", pool, "rbd")
    choice = random.Random(2017)
    with rados.Rados(conffile=conf, conf={"rbd_cache": "false"}) as cluster:
        for volume in range(n_volumes):
            for pool in choice.sample(list(pools), len(pools)):
                with cluster.open_ioctx(pool) as context:
                    rbd.RBD().create(context, f"v{volume}", VOLUME)
                    with rbd.Image(context, f"v{volume}") as image:
                        for offset in range(0, VOLUME, OBJECT):
                            image.write(b"z" * OBJECT, offset)
                        time.sleep(2)
                        yield volume, pool, image
                    rbd.RBD().remove(context, f"v{volume}")


def measured(conf: str) -> Iterator[tuple[int, str, int, str, int, float]]:
    """Yield volume, pool, bytes, op, streams and rate of each run."""
    choice = random.Random(2017)
    for volume, pool, image in filled_volumes(conf, POOLS, N_VOLUMES):
        for nbytes, op, n_streams in product((4 << 10, 32 << 10), ("read", "write"), STREAMS):
            yield volume, pool, nbytes, op, n_streams, rate(image, op, nbytes, n_streams, choice)


def print_rates() -> None:
    logs: dict[tuple[str, ...], list[float]] = defaultdict(list)
    with (KEPT / "streams.csv").open() as stream:
        for row in csv.DictReader(stream):
            key = row["nbytes"], row["op"], row["streams"], row["pool"]
            logs[key].append(math.log(float(row["per_second"])))
    print("| accesses | one copy | two copies | three copies | SSDs | one / two | three / two | SSDs / two |")
    print("|---|---|---|---|---|---|---|---|")
    for nbytes, op in (("4096", "write"), ("32768", "write"), ("4096", "read"), ("32768", "read")):
        for n in map(str, STREAMS):
            rates = [math.exp(sum(x := logs[nbytes, op, n, pool]) / len(x)) for pool in POOLS]
            ratios = (rates[0] / rates[1], rates[2] / rates[1], rates[3] / rates[1])
            what = {"0": "random", "1": "1 stream"}.get(n, f"{n} streams")
            cells = [*(f"{found:.0f}" for found in rates), *(f"{ratio:.2f}" for ratio in ratios)]
            print(f"| {int(nbytes) >> 10}K {op}, {what} |", " | ".join(cells), "|")


def print_accuracy() -> None:
    from cephfit.core.profile_files import read_profile
    from cephfit.operations.evaluation_set import read_folder
    from cephfit.operations.model_assessment import assess_models

    print("\n| `waiting` | ratios | median error: random | half | sequential | p90: random | half | sequential |")
    print("|---|---|---|---|---|---|---|---|")
    for folder, name in SETS.items():
        evaluation = read_folder(DATA / folder)
        scores = []
        for counted in COUNTED:
            workloads = [
                replace(workload, profile=read_profile(KEPT / counted / f"{workload.profile.name}.json"))
                for workload in evaluation.workloads
            ]
            found = assess_models(replace(evaluation, workloads=tuple(workloads)), models=("waiting",))
            scores.append(found.accuracy[0])
        cells = [f"{s.median_error_pct:.1f} %" for s in scores] + [f"{s.p90_error_pct:.1f} %" for s in scores]
        print(f"| {name} | {scores[0].n_configurations} |", " | ".join(cells), "|")


def main() -> None:
    if sys.argv[1:2] == ["measure"]:
        keep(KEPT / "streams.csv", ("volume", "pool", "nbytes", "op", "streams"), measured(sys.argv[2]))
        return
    print_rates()
    print_accuracy()


if __name__ == "__main__":
    main()
