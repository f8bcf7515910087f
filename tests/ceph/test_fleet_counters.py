"""Counters of images from the manager of a live cluster: which it is asked for, and what it cannot say."""

import errno
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.volumes import readings
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.values.image_io import FleetLoad, ImageName, load_between

WORDS = ["write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency"]
MOST = 64


class Manager:
    """Answers as src/pybind/mgr/rbd_support/perf.py: at most 64 images, sorted by one value, no idle ones.

    Each query adds ``rates`` to the counters, as if it were a second later.
    """

    def __init__(self, rates: dict[ImageName, Sequence[int]], *, refusing: int = 0) -> None:
        self.rates = rates
        self.sums = {name: [0] * 6 for name in rates}
        self.refusing = refusing
        self.seconds = 0.0

    def clock(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        for name, rate in self.rates.items():
            self.sums[name] = [a + round(seconds * b) for a, b in zip(self.sums[name], rate, strict=True)]

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        if prefix == "df":
            writes = sum(sums[0] for sums in self.sums.values())
            return {"pools": [{"name": "vms", "stats": {"rd": 0, "wr": writes, "rd_bytes": 0, "wr_bytes": 0}}]}
        assert prefix == "osd dump"
        pools = {name.pool for name in self.rates}
        rows = [{"pool_name": pool, "application_metadata": {"rbd": {}}} for pool in sorted(pools)]
        return {"pools": [*rows, {"pool_name": ".mgr", "application_metadata": {"mgr": {}}}]}

    def tell(self, daemon: str, prefix: str, /, *, sort_by: str, pool_spec: str = "") -> Any:
        assert (daemon, prefix) == ("mgr", "rbd perf image counters")
        if self.refusing:
            raise RefusedError("refused", where="mgr", code=self.refusing)
        asked = [n for n in self.rates if not pool_spec or (n.pool == pool_spec and not n.namespace)]
        place = WORDS.index(sort_by)
        asked.sort(key=lambda name: -self.rates[name][place])
        pools: dict[str, int] = {}
        numbers = count()
        rows = []
        for name in asked[:MOST]:
            pool = f"{name.pool}/{name.namespace}" if name.namespace else name.pool
            number = pools.setdefault(pool, next(numbers) if pool not in pools else 0)
            if any(self.sums[name]):
                rows.append({f"{number}/{name.image}": list(self.sums[name])})
        descriptors = {str(number): pool for pool, number in pools.items()}
        return {
            "timestamp": self.seconds,
            "counter_descriptors": WORDS,
            "pool_descriptors": descriptors,
            "counters": rows,
        }

    def exchange(self, prefix: str, payload: bytes = b"", /, **arguments: Any) -> bytes:
        raise AssertionError(prefix)

    def close(self) -> None:
        pass


def surveyed(manager: Manager, *, seconds: float = 60.0) -> FleetLoad:
    found = readings(manager, seconds=seconds, interval_seconds=10, wait=manager.wait, clock=manager.clock)
    return load_between(list(found), source="ceph")


def test_the_rates_of_images_in_pools_and_namespaces() -> None:
    rates = {
        ImageName("vms", "", "a"): (100, 10, 409600, 40960, 10**8, 10**7),
        ImageName("vms", "tenant", "a"): (5, 0, 20480, 0, 10**7, 0),
        ImageName("volumes", "", "b"): (0, 7, 0, 28672, 0, 10**7),
    }
    fleet = surveyed(Manager(rates))
    assert fleet.seconds == 60
    assert len(fleet.interval_seconds) == 6
    assert {image.name: image.counts.operations / 60 for image in fleet.images} == {
        name: rate[0] + rate[1] for name, rate in rates.items()
    }
    assert fleet.images[0].counts.write_latency_ns == 60 * 10**8
    assert fleet.totals["pool vms"].writes == 60 * 105


def test_more_images_than_a_list_holds_are_found_in_other_orders() -> None:
    """100 images write, 60 others read more: the orders by reads list those."""
    rates = {ImageName("vms", "", f"w{n:03}"): (1000 - n, 0, 4096 * (1000 - n), 0, n, 0) for n in range(100)}
    rates |= {ImageName("vms", "", f"r{n:03}"): (0, 500 - n, 0, 4096 * (500 - n), 0, n) for n in range(60)}
    manager = Manager(rates)
    found = list(readings(manager, seconds=20, interval_seconds=10, wait=manager.wait, clock=manager.clock))
    names = {name.image for name in found[-1].images}
    assert sum(name.startswith("r") for name in names) == 60
    assert 64 <= sum(name.startswith("w") for name in names) <= 100
    assert not found[-1].is_complete


def test_a_short_list_is_complete() -> None:
    manager = Manager({ImageName("vms", "", "a"): (1, 1, 1, 1, 1, 1)})
    found = list(readings(manager, seconds=10, interval_seconds=10, wait=manager.wait, clock=manager.clock))
    assert all(reading.is_complete for reading in found)


def test_a_cluster_without_pools_of_images_is_refused() -> None:
    with pytest.raises(InputError, match="no pool") as caught:
        surveyed(Manager({}))
    assert "application enable" in caught.value.remedy


@pytest.mark.parametrize(
    ("code", "remedy"), [(errno.EOPNOTSUPP, "mgr module enable rbd_support"), (errno.EACCES, "mgr 'allow r'")]
)
def test_a_manager_that_refuses_is_explained(code: int, remedy: str) -> None:
    manager = Manager({ImageName("vms", "", "a"): (1,) * 6}, refusing=code)
    with pytest.raises(ClusterError) as caught:
        surveyed(manager)
    assert remedy in caught.value.remedy
