"""Images in classes: fleets with known classes, and what the rule promises."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from fleets import KINDS, Kind, fleet

from cephfit.core.values.image_io import ImageLoad, ImageName, IoCounts
from cephfit.traces.load_classes import classes_of, features, to_trace


def kind_of(image: ImageLoad) -> str:
    return image.name.image.partition("-")[0]


def load(name: str, reads: float, writes: float, nbytes: float = 4096) -> ImageLoad:
    counts = IoCounts(reads, writes, reads * nbytes, writes * nbytes)
    return ImageLoad(ImageName("p", "", name), counts, (counts.operations,))


@pytest.mark.parametrize("seed", range(5))
def test_known_classes_are_recovered(seed: int) -> None:
    classes = classes_of(fleet(seed=seed).images, 600.0)
    assert len(classes) == len(KINDS)
    for one in classes:
        (kind,) = {kind_of(image) for image in one.images}
        assert len(one.images) == KINDS[kind].n
        assert not one.outliers


def test_classes_have_falling_loads_and_all_images() -> None:
    load_of_all = fleet()
    classes = classes_of(load_of_all.images, load_of_all.seconds)
    sums = [one.counts.operations for one in classes]
    assert sums == sorted(sums, reverse=True)
    assert [one.number for one in classes] == [1, 2, 3, 4]
    assert sum(sums) == pytest.approx(load_of_all.counts.operations)
    assert Counter(i.name for one in classes for i in one.images) == Counter(i.name for i in load_of_all.images)


def test_the_order_of_images_does_not_matter() -> None:
    images = list(fleet().images)
    expected = classes_of(images, 600.0)
    np.random.default_rng(3).shuffle(images)  # type: ignore[arg-type]
    assert classes_of(images, 600.0) == expected


def test_alike_images_are_one_class_and_a_single_image_too() -> None:
    alike = fleet({"web": Kind(30, 12.0, 0.9, 32768, 16384)}, spread=0.02)
    assert len(classes_of(alike.images, alike.seconds)) == 1
    assert len(classes_of(alike.images[:1], alike.seconds)) == 1


def test_two_images_that_differ_are_two_classes() -> None:
    """A factor of 4 in size is the border."""
    near, far = (classes_of([load("a", 0, 100), load("b", 0, 100, 4096 * f)], 1.0) for f in (3.9, 4.1))
    assert (len(near), len(far)) == (1, 2)


def test_the_border_of_rates_is_a_factor_of_16() -> None:
    near, far = (classes_of([load("a", 0, 10), load("b", 0, 10 * f)], 1.0) for f in (15, 17))
    assert (len(near), len(far)) == (1, 2)


def test_the_size_of_rare_reads_decides_nothing() -> None:
    without = load("a", 0, 1000)
    with_few = replace(without, counts=IoCounts(1, 1000, float(1 << 22), 4096000))
    distance = math.dist(features(without, 1.0), features(with_few, 1.0))
    assert distance < 0.02


def test_idle_images_are_in_no_class() -> None:
    images = [load("a", 5, 5), load("idle", 0, 0)]
    (one,) = classes_of(images, 1.0)
    assert [str(i.name) for i in one.images] == ["p/a"]
    assert classes_of(images[1:], 1.0) == []


@pytest.mark.parametrize("n", [1, 2, 6, 37])
def test_the_number_of_classes_can_be_given(n: int) -> None:
    assert len(classes_of(fleet().images, 600.0, n_classes=n)) == n


def test_more_classes_than_images_are_as_many_as_images() -> None:
    assert len(classes_of([load("a", 1, 1), load("b", 100, 1)], 1.0, n_classes=9)) == 2


def test_the_traced_classes_are_the_fewest_that_cover_nine_tenths() -> None:
    classes = classes_of(fleet().images, 600.0)
    total = sum(one.counts.operations for one in classes)
    chosen = to_trace(classes)
    covered = sum(one.counts.operations for one in chosen)
    assert covered >= 0.9 * total
    assert covered - chosen[-1].counts.operations < 0.9 * total


def test_the_typical_image_is_near_the_centre_and_busy() -> None:
    """Of eight alike images and one at the border, the busiest of the nearest quarter stands for the class."""
    images = [load(f"i{n}", 0, 100 + n) for n in range(8)] + [load("far", 0, 150, 3 * 4096)]
    (one,) = classes_of(images, 1.0)
    assert str(one.images[0].name) == "p/far"
    assert str(one.typical.name) != "p/far"
    points = np.array([features(i, 1.0) for i in one.images])
    centre = np.average(points, axis=0, weights=[i.counts.operations for i in one.images])
    nearest = sorted(one.images, key=lambda i: math.dist(features(i, 1.0), tuple(centre)))[:3]
    assert one.typical == max(nearest, key=lambda i: i.counts.operations)


def test_an_image_unlike_its_class_is_named() -> None:
    images = [load(f"i{n}", 0, 100) for n in range(8)] + [load("other", 90, 0, 65536)]
    (one,) = classes_of(images, 1.0, n_classes=1)
    assert [str(i.name) for i in one.outliers] == ["p/other"]


def test_a_fleet_of_thousands_has_the_same_classes() -> None:
    """Beyond 4,000 images, the others join the nearest class."""
    many = {word: replace(kind, n=200 * kind.n) for word, kind in KINDS.items()}
    classes = classes_of(fleet(many, spread=0.05).images, 600.0)
    assert sorted(len(one.images) for one in classes) == [1000, 1000, 2400, 3000]
    assert all(len({kind_of(image) for image in one.images}) == 1 for one in classes)
