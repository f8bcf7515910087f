"""Rates of images from counters that were read several times."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.errors import InputError
from cephfit.core.values.image_io import FleetLoad, ImageLoad, ImageName, IoCounts, Reading, load_between

A, B = ImageName("vms", "", "a"), ImageName("vms", "tenant", "b")


def ops(reads: float, writes: float) -> IoCounts:
    return IoCounts(reads, writes, 4096 * reads, 8192 * writes)


def test_the_difference_of_two_readings() -> None:
    fleet = load_between([Reading(100, {A: ops(10, 5)}), Reading(160, {A: ops(70, 35)})], source="x")
    (image,) = fleet.images
    assert fleet.seconds == 60
    assert image.counts == ops(60, 30)
    assert image.operations == (90,)
    assert fleet.counts.read_share == pytest.approx(2 / 3)


def test_a_counter_that_was_reset_counts_from_zero() -> None:
    """The manager restarted between the second and the third reading: 10 + 40 reads are known to have happened."""
    readings = [Reading(0, {A: ops(90, 0)}), Reading(10, {A: ops(100, 0)}), Reading(20, {A: ops(40, 0)})]
    fleet = load_between(readings, source="x")
    assert fleet.images[0].counts.reads == 50
    assert fleet.images[0].operations == (10, 40)
    assert "fell 1 times" in fleet.notes[0]


def test_an_image_that_appears_has_counted_from_zero() -> None:
    fleet = load_between([Reading(0, {A: ops(1, 0)}), Reading(10, {A: ops(1, 0), B: ops(0, 7)})], source="x")
    assert [image.counts.operations for image in fleet.images] == [0, 7]
    assert str(fleet.images[1].name) == "vms/tenant/b"


def test_an_image_that_an_incomplete_reading_omits_counts_from_its_first_value() -> None:
    readings = [
        Reading(0, {A: ops(1, 0)}, is_complete=False),
        Reading(10, {B: ops(0, 7)}),
        Reading(20, {B: ops(0, 9)}),
    ]
    by_name = {i.name: i.counts.operations for i in load_between(readings, source="x").images}
    assert by_name == {A: 0, B: 2}


def test_an_image_that_is_deleted_keeps_what_it_did() -> None:
    readings = [Reading(0, {A: ops(0, 0)}), Reading(10, {A: ops(5, 0)}), Reading(20, {})]
    assert load_between(readings, source="x").images[0].operations == (5, 0)


def test_unknown_latencies_stay_unknown() -> None:
    nan = float("nan")
    before, after = (IoCounts(n, n, n, n, nan, nan) for n in (1, 2))
    fleet = load_between([Reading(0, {A: before}), Reading(1, {A: after})], source="x")
    assert fleet.images[0].counts.reads == 1
    assert math.isnan(fleet.images[0].counts.read_latency_ns)
    assert not fleet.notes


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        ([Reading(0, {A: ops(1, 1)})], "once only"),
        ([Reading(5, {A: ops(1, 1)}), Reading(5, {A: ops(2, 2)})], "rising times"),
        ([Reading(5, {A: ops(1, 1)}), Reading(4, {A: ops(2, 2)})], "rising times"),
    ],
)
def test_readings_without_a_rate_are_refused(readings: list[Reading], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load_between(readings, source="x")
    assert caught.value.remedy


@given(st.lists(st.tuples(st.sampled_from((5.0, 10.0, 20.0, 30.0)), st.integers(0, 100)), min_size=1, max_size=20))
def test_the_busiest_minute_is_that_of_all_windows(steps: list[tuple[float, int]]) -> None:
    seconds, operations = zip(*steps, strict=True)
    image = ImageLoad(A, ops(sum(operations), 0), tuple(map(float, operations)))
    found = FleetLoad("x", seconds, (image,)).busiest_minute([image])
    rates = []
    for first in range(len(steps)):
        for last in range(first, len(steps)):
            if sum(seconds[first : last + 1]) >= 60:
                rates.append(sum(operations[first : last + 1]) / sum(seconds[first : last + 1]))
                break
    if not rates:
        assert found is None
    else:
        assert found == pytest.approx(max(rates))
