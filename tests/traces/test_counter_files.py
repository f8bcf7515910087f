"""Counters of images as ceph-mgr and `rbd perf` write them.

``golden/ceph-mgr-16.2-*.prom.gz`` are scrapes of the module prometheus of a real Ceph 16.2.15, with and without
``rbd_stats_pools``; its three images were idle.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.core.values.image_io import ImageName, IoCounts
from cephfit.traces.saved_counters import documents, load_of, parse_scrape

GOLDEN = Path(__file__).parent / "golden"
COUNTERS = {
    "timestamp": 1795286800.0,
    "counter_descriptors": ["write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency"],
    "pool_descriptors": {"0": "bench", "1": "rbd/tenant"},
    "counters": [
        {"0/A.c0": [390, 0, 1597440, 0, 4871236123, 0]},
        {"1/A.c0": [0, 10600, 0, 43417600, 0, 3871236123]},
    ],
}
"""As Ceph 16.2 gave it to `ceph tell mgr rbd perf image counters`, except for the namespace."""


def recorded(name: str) -> str:
    return gzip.decompress((GOLDEN / f"ceph-mgr-16.2-{name}.prom.gz").read_bytes()).decode()


def iostat_row(image: str, **values: float) -> dict[str, Any]:
    zero = dict.fromkeys(
        ("write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency"), 0.0
    )
    return {"pool": "rbd", "pool_namespace": "", "image": image, **zero, **values}


def test_a_real_scrape_has_its_images_and_the_io_of_pools_and_osds() -> None:
    scrape = parse_scrape(recorded("images"), where="x")
    names = [
        f"volume-{u}" for u in ("0d6d4f3c-21cd-4ee1-a0d3-6d2ee8a1a1b2", "5a5c3f10-7f0e-4c0b-9d3c-1b0a2c3d4e5f")
    ]
    assert scrape.reading.images == {ImageName("rbd", "", n): IoCounts() for n in ("idle", *names)}
    assert not scrape.is_timed
    assert set(scrape.reading.totals) == {"pool rbd", "osd.0", "osd.1", "osd.2", "osd.3"}
    assert scrape.reading.totals["pool rbd"].reads >= 22


def test_a_real_scrape_counts_what_its_lines_say() -> None:
    """The recorded scrape with the counters of one image replaced."""
    values = {"write_ops": 60, "read_ops": 20, "write_bytes": 245760, "read_bytes": 1310720}
    values |= {"write_latency_sum": 120e6, "read_latency_sum": 10e6}
    text = recorded("images")
    for name, value in values.items():
        line = f'ceph_rbd_{name}{{pool="rbd",namespace="",image="idle"}} '
        assert f"{line}0.0\n" in text
        text = text.replace(f"{line}0.0\n", f"{line}{float(value)}\n")
    counts = parse_scrape(text, where="x").reading.images[ImageName("rbd", "", "idle")]
    assert counts == IoCounts(20, 60, 1310720, 245760, 10e6, 120e6)
    assert counts.mean_nbytes(Op.READ) == 65536
    assert counts.mean_latency_us(Op.WRITE) == pytest.approx(2000)


def test_a_real_scrape_without_images_says_how_to_count_them() -> None:
    with pytest.raises(InputError, match="no counters of images") as caught:
        parse_scrape(recorded("no-images"), where="x")
    assert "mgr/prometheus/rbd_stats_pools" in caught.value.remedy


def test_documents_may_follow_each_other() -> None:
    text = ' [{"a": 1}]\n{"b":\n 2}[]\n'
    assert documents(text, where="x") == [[{"a": 1}], {"b": 2}, []]
    with pytest.raises(InputError, match="not JSON") as caught:
        documents("[]\n[]\nrbd: error\n", where="x")
    assert caught.value.where == "x:3"


def test_rates_of_several_samples_are_averaged() -> None:
    """100 and 300 writes/s of 4 and 8 KiB at 1 and 3 ms, an image that is listed once only."""
    first = [iostat_row("a", write_ops=100.0, write_bytes=409600.0, write_latency=1e6)]
    second = [iostat_row("a", write_ops=300.0, write_bytes=2457600.0, write_latency=3e6)]
    second.append(iostat_row("b", read_ops=10.0, read_bytes=40960.0, read_latency=5e5))
    fleet = load_of([("x", first), ("x", second)], interval_seconds=10)
    a, b = fleet.images
    assert fleet.seconds == 20
    assert a.counts.writes / fleet.seconds == 200
    assert a.operations == (1000, 3000)
    assert a.counts.mean_nbytes(Op.WRITE) == pytest.approx(7168)
    assert a.counts.mean_latency_us(Op.WRITE) == pytest.approx(2500), "weighted by operations"
    assert b.operations == (0, 100)


def test_counters_of_the_manager_have_their_times() -> None:
    later = json.loads(json.dumps(COUNTERS))
    later["timestamp"] += 60
    later["counters"][0]["0/A.c0"] = [450, 0, 1597440 + 60 * 4096, 0, 4991236123, 0]
    fleet = load_of([("x", COUNTERS), ("x", later)], interval_seconds=None)
    first, second = fleet.images
    assert fleet.seconds == 60
    assert first.counts == IoCounts(0, 60, 0, 245760, 0, 120e6)
    assert second.name == ImageName("rbd", "tenant", "A.c0")
    assert second.counts.operations == 0


def test_rates_of_the_manager_are_read_too() -> None:
    stats = {**COUNTERS, "stat_descriptors": COUNTERS["counter_descriptors"], "stats": COUNTERS["counters"]}
    del stats["counter_descriptors"]
    fleet = load_of([("x", stats)], interval_seconds=5)
    assert fleet.images[0].counts.writes == 390 * 5


def test_rates_and_counters_are_not_mixed() -> None:
    with pytest.raises(InputError, match="together"):
        load_of([("x", COUNTERS), ("y", [iostat_row("a")])], interval_seconds=None)
