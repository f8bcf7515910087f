"""The model of the simulated cluster: it fits the lab's figures, and has the effects that real clusters showed."""

import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab_figures import Figure, alignment_figures, cell_figures, configurations
from simulated_evaluation import CONFIGURATIONS

from cephfit.core.errors import InputError
from cephfit.core.units import KIB, MIB
from cephfit.core.values.cells import Pattern
from cephfit.core.values.configuration import Configuration, Partition, Setting, Value
from cephfit.targets.simulated_storage import Access, iops, parts_of

KNOWN = {c.name: c for c in CONFIGURATIONS}
DEFAULT, CACHED = KNOWN["A"], KNOWN["cached"]


def ratio(configuration: Configuration, access: Access, *, n_clients: int = 1) -> float:
    """Return the rate relative to the default's."""
    return iops(configuration, access, n_clients=n_clients) / iops(DEFAULT, access, n_clients=n_clients)


def error(figure: Figure) -> float:
    return figure.modelled() / figure.iops - 1


def test_the_model_fits_the_rates_of_the_lab() -> None:
    """112 rates of seven configurations; sequential reads of the lab scatter by a factor of 2 themselves."""
    errors = sorted(abs(error(figure)) for figure in cell_figures())
    assert len(errors) == 112
    assert statistics.median(errors) < 0.06
    assert errors[round(0.9 * len(errors))] < 0.22


@pytest.mark.parametrize("figure", alignment_figures(), ids=lambda figure: figure.what)
def test_the_model_fits_the_effect_of_alignment(figure: Figure) -> None:
    assert abs(error(figure)) < 0.1


def test_cells_aligned_to_their_own_size_hide_the_effect_of_deferred_writes() -> None:
    own, blocks = (Access(128 * KIB, Pattern.RANDWRITE, align_nbytes=align) for align in (0, 4 * KIB))
    assert ratio(KNOWN["no-deferred"], own) == 1.0
    assert 1.7 < ratio(KNOWN["no-deferred"], blocks, n_clients=2) < 2.8
    assert ratio(KNOWN["ssd"], blocks) > 1.4 * ratio(KNOWN["ssd"], own), "nothing is deferred on ssd"


@given(
    st.sampled_from(CONFIGURATIONS),
    st.sampled_from(list(Pattern)),
    st.integers(1, 1024),
    st.sampled_from([0, 4 * KIB, 64 * KIB]),
    st.sampled_from(["", "fsync", "every 8"]),
)
def test_rates_grow_with_the_depth_and_never_more_than_in_proportion(
    configuration: Configuration, pattern: Pattern, blocks: int, align: int, sync: str
) -> None:
    rates = [
        iops(configuration, Access(4 * KIB * blocks, pattern, depth, align, sync)) for depth in (1, 1.5, 2, 8, 64)
    ]
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(rates))
    assert rates[-1] <= 64 * rates[0]


@given(st.sampled_from(CONFIGURATIONS), st.integers(1, 1024), st.sampled_from([1, 4]), st.booleans())
def test_sequential_accesses_are_as_fast_as_random_ones_or_faster(
    configuration: Configuration, blocks: int, depth: int, reads: bool
) -> None:
    kinds = (Pattern.READ, Pattern.RANDREAD) if reads else (Pattern.WRITE, Pattern.RANDWRITE)
    sequential, random = (iops(configuration, Access(4 * KIB * blocks, kind, depth)) for kind in kinds)
    assert sequential >= random


def test_a_faster_primary_is_worth_more_the_more_reads_are_in_flight() -> None:
    """Measured: 1.9 times at depth 1, 4.1 times at depth 4. The model gives more at depth 1."""
    shallow, deep = (ratio(KNOWN["hybrid"], Access(4 * KIB, Pattern.RANDREAD, depth)) for depth in (1, 4))
    assert shallow < 0.85 * deep
    assert deep == pytest.approx(4.1, rel=0.05)
    write = Access(4 * KIB, Pattern.RANDWRITE)
    assert iops(KNOWN["hybrid"], write) == iops(DEFAULT, write), "writes wait for the slower copy"


def test_the_time_of_an_unaligned_read_is_linear_in_its_size() -> None:
    seconds = [
        1 / iops(DEFAULT, Access(nbytes, Pattern.RANDREAD, align_nbytes=4 * KIB))
        for nbytes in (4 * KIB, 20 * KIB, 36 * KIB, 52 * KIB)
    ]
    steps = [b - a for a, b in pairwise(seconds)]
    assert steps == pytest.approx([steps[0]] * 3, rel=0.01), "ends of objects bend it slightly"
    assert steps[0] > 0


def test_clients_share_the_osds() -> None:
    access = Access(4 * KIB, Pattern.RANDREAD, 4)
    one, four = (n * iops(DEFAULT, access, n_clients=n) for n in (1, 4))
    assert one < four < 4 * one
    assert four == pytest.approx(iops(DEFAULT, Access(4 * KIB, Pattern.RANDREAD, 16)))


def test_a_client_cache_absorbs_writes_until_it_is_full() -> None:
    write = Access(4 * KIB, Pattern.RANDWRITE)
    default = iops(DEFAULT, write, n_clients=2)
    brief = iops(CACHED, write, n_clients=2, window_seconds=(0.0, 1.2)) / default
    later = iops(CACHED, write, n_clients=2, window_seconds=(60.0, 1.2)) / default
    assert 60 < brief < 100
    assert 1 < later < 3
    whole = iops(CACHED, write, n_clients=2, window_seconds=(0.0, 10.0)) / default
    assert later < whole < brief
    assert ratio(CACHED, write, n_clients=2) == later
    assert ratio(CACHED, Access(4 * KIB, Pattern.RANDREAD)) == 1.0


@pytest.mark.parametrize("sync", ["fsync", "dsync", "every 1"])
def test_a_client_cache_does_not_help_writes_that_are_flushed_one_by_one(sync: str) -> None:
    assert 0.8 < ratio(CACHED, Access(4 * KIB, Pattern.RANDWRITE, sync=sync)) < 1


def test_a_flush_writes_back_what_the_cache_absorbed_before() -> None:
    gains = [ratio(CACHED, Access(32 * KIB, Pattern.RANDWRITE, sync=f"every {n}")) for n in (1, 2, 4, 16)]
    assert gains == sorted(gains)
    assert 1 < gains[-1] < 2


def test_flushes_cost_time_without_a_cache_too() -> None:
    never, rarely, always = (
        iops(DEFAULT, Access(4 * KIB, Pattern.RANDWRITE, sync=sync)) for sync in ("", "every 8", "fsync")
    )
    assert always < rarely < never
    reads = {iops(DEFAULT, Access(4 * KIB, Pattern.RANDREAD, sync=sync)) for sync in ("", "fsync")}
    assert len(reads) == 1
    with pytest.raises(InputError, match="cannot write with sync: often"):
        iops(DEFAULT, Access(4 * KIB, Pattern.RANDWRITE, sync="often"))


@pytest.mark.parametrize(
    "settings",
    [
        {"rbd_cache": False},
        {"rbd_cache_policy": "writeback"},
        {"rbd_cache": True, "rbd_cache_policy": "writethrough"},
    ],
    ids=str,
)
def test_a_cache_that_is_off_or_writes_through_changes_nothing(settings: dict[str, Value]) -> None:
    off = Configuration("off", tuple(Setting(Partition.CEPH, "client", k, v) for k, v in settings.items()))
    assert ratio(off, Access(4 * KIB, Pattern.RANDWRITE)) == 1.0


def test_journaling_more_copies_and_stripes_cost_writes_what_they_cost_the_lab() -> None:
    write = Access(40 * KIB, Pattern.RANDWRITE, align_nbytes=8 * KIB)
    assert ratio(KNOWN["journaling"], write) == pytest.approx(0.47, abs=0.01)
    assert ratio(KNOWN["three-copies"], write) == pytest.approx(1 / 1.3, abs=0.05)
    # pgbench, whose writes were 40K to 72K, reached 0.70 with stripes of 16K.
    assert 0.6 < ratio(KNOWN["striped-16k"], write) < 0.8
    assert ratio(KNOWN["journaling"], Access(40 * KIB, Pattern.RANDREAD)) == 1.0
    assert (
        ratio(KNOWN["striped"], Access(MIB, Pattern.RANDREAD))
        > 1
        > ratio(KNOWN["striped"], Access(MIB, Pattern.RANDWRITE))
    )


def test_every_configuration_of_the_quick_sweep_has_its_known_effect() -> None:
    write, read = Access(32 * KIB, Pattern.RANDWRITE), Access(MIB, Pattern.RANDREAD)
    effects = {name: (ratio(c, write), ratio(c, read)) for name, c in configurations().items()}
    assert effects["A-again"] == (1.0, 1.0)
    assert effects["ssd"][0] > 5
    assert effects["no-deferred"][0] > 1.4
    assert effects["blob-512k"][1] > 4
    assert effects["journaling"][0] < 0.5


@given(
    nbytes=st.integers(1, 40),
    align=st.integers(1, 9),
    blob=st.sampled_from([2, 4, 8]),
    deferred_below=st.integers(0, 9),
    unit=st.sampled_from([2, 4, 8, 16]),
    count=st.integers(1, 3),
)
def test_parts_are_what_counting_byte_by_byte_gives(
    nbytes: int, align: int, blob: int, deferred_below: int, unit: int, count: int
) -> None:
    object_nbytes = 16
    repeat = object_nbytes * count
    objects = pieces = deferred = 0
    for k in range(repeat):
        small: dict[tuple[int, int, int], int] = {}
        for byte in range(k * align, k * align + nbytes):
            stripe, place = divmod(byte // unit, count)
            local = stripe * unit + byte % unit
            piece = (place, local // object_nbytes, local // blob)
            small[piece] = small.get(piece, 0) + 1
        objects += len({(place, number) for place, number, _ in small})
        pieces += len(small)
        deferred += sum(n for n in small.values() if n < deferred_below)
    found = parts_of(nbytes, align, blob, deferred_below, object_nbytes, unit, count)
    assert found.objects == pytest.approx(objects / repeat)
    assert found.pieces == pytest.approx(pieces / repeat)
    assert found.deferred_nbytes == pytest.approx(deferred / repeat)
