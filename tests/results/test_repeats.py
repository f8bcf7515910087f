"""The repeats that count, against a plain search over the samples."""

import math
import random

import pytest

from cephfit.core.statistics.sample_columns import SampleColumns
from cephfit.core.values.cells import CELLS, Cell
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.results.statistics.sample_baselines import tried_of


def plain_repeats(samples: list[Sample]) -> list[list[Sample]]:
    """Return for each repeat the samples of the first attempt in which every client is ok and had I/O."""
    clients = sorted({s.key.client for s in samples})
    found = []
    for repeat in sorted({s.key.repeat for s in samples}):
        for attempt in range(3):
            own = {s.key.client: s for s in samples if (s.key.repeat, s.key.attempt) == (repeat, attempt)}
            good = [own[c] for c in clients if c in own and own[c].state is State.OK]
            good = [s for s in good if s.metrics is not None and s.metrics.iops > 0]
            if len(good) == len(clients):
                found.append(good)
                break
    return found


def drawn_samples(seed: int) -> list[Sample]:
    drawn = random.Random(seed)
    found = []
    for name in ("B", "A"):
        for cell in drawn.sample(CELLS, 3):
            for client in range(drawn.randint(1, 3)):
                for repeat in range(4):
                    for attempt in range(drawn.randint(0, 3)):
                        is_ok = drawn.random() < 0.8
                        iops = drawn.choice([0.0, drawn.uniform(1, 9), drawn.uniform(1, 9), 5.0])
                        tails = {50.0: 1e6, 99.0: drawn.uniform(2e6, 9e6)} if drawn.random() < 0.9 else {50.0: 1e6}
                        metrics = Metrics(
                            iops, 4096 * iops, drawn.randint(1, 99), 10**9, drawn.uniform(1, 9), tails
                        )
                        found.append(
                            Sample(
                                SampleKey(name, cell, f"c{client}", repeat, attempt),
                                State.OK if is_ok else State.INVALID,
                                metrics,
                                0,
                                1,
                                "" if is_ok else "slow",
                            )
                        )
    drawn.shuffle(found)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_what_counts_is_what_a_plain_search_finds(seed: int) -> None:
    samples = drawn_samples(seed)
    tried = tried_of(samples)
    by_place: dict[tuple[str, Cell], list[Sample]] = {}
    for sample in samples:
        by_place.setdefault((sample.key.configuration, sample.key.cell), []).append(sample)
    assert list(tried) == list(by_place), "in order of appearance"
    for place, own in by_place.items():
        expected, whole = plain_repeats(own), tried[place].whole
        assert [list(whole.samples.take(rows)) for rows in whole.rows] == expected
        assert whole.numbers == [repeat[0].key.repeat for repeat in expected]
        lost = {s.key.repeat for s in own} - {repeat[0].key.repeat for repeat in expected}
        assert tried[place].lost() == sorted(lost)
        metrics = [[s.metrics for s in repeat if s.metrics] for repeat in expected]
        assert whole.sums(whole.samples.iops) == [math.fsum(m.iops for m in one) for one in metrics]
        means = [sum(m.latency_mean_ns * m.n_ios for m in one) / sum(m.n_ios for m in one) for one in metrics]
        assert whole.latency_mean_ns() == pytest.approx(means)
        tails = [[m.latency_percentiles_ns.get(99.0) for m in one] for one in metrics]
        assert whole.slowest_p99_ns() == [None if None in one else max(p for p in one if p) for one in tails]


def test_samples_of_another_load_are_not_in_the_way() -> None:
    cell, metrics = CELLS[0], Metrics(5.0, 1.0, 1, 1, 1.0)
    keys = [SampleKey("A", cell, client, 0, load=load) for load in ("", "deep") for client in ("c0", "c1")]
    samples = SampleColumns.of([Sample(key, State.OK, metrics, 0, 1) for key in keys])
    assert tried_of(samples, "deep")["A", cell].whole.rows.tolist() == [[2, 3]]
