"""Joint assignment: the best of all assignments of small cases, tried one by one; limits that are too small."""

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from cephfit.core.errors import InputError
from cephfit.mapper.decisions.placement import JointWorkload, Limit, Option, place_jointly

POOLS = ("hdd", "mixed", "ssd")


def drawn(seed: int) -> tuple[list[JointWorkload], list[Limit]]:
    """Up to four workloads of up to three machines, and limits that a part of all assignments keeps."""
    draws = np.random.default_rng(seed)
    workloads = []
    for i in range(int(draws.integers(1, 5))):
        volume, options = float(draws.uniform(10, 100)), {}
        for price, pool in enumerate(POOLS, start=1):
            if price > 1 and draws.random() < 0.2:
                continue
            performance = float(100 * price * draws.lognormal(0, 0.4))
            uses = {f"space {pool}": volume, "time": float(draws.uniform(0, 0.4) / price)}
            options[pool] = Option(performance, price * volume, uses)
        workloads.append(JointWorkload(f"w{i}", int(draws.integers(1, 4)), options))
    space = [Limit(f"space {pool}", float(draws.uniform(50, 400)), str) for pool in POOLS]
    return workloads, [*space, Limit("time", 1.0, str)]


def splits(count: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a sum of so many numbers."""
    if parts == 1:
        yield (count,)
        return
    for n in range(count + 1):
        for rest in splits(count - n, parts - 1):
            yield (n, *rest)


def every_assignment(workloads: list[JointWorkload], *, split: bool) -> Iterator[list[Mapping[str, int]]]:
    def of(w: JointWorkload) -> list[dict[str, int]]:
        if not split:
            return [{pool: w.count} for pool in w.options]
        return [dict(zip(w.options, parts, strict=True)) for parts in splits(w.count, len(w.options))]

    for found in itertools.product(*map(of, workloads)):
        yield list(found)


def figures(
    workloads: list[JointWorkload], machines: list[Mapping[str, int]]
) -> tuple[float, float, dict[str, float]]:
    """Cost, log of the mean performance, and what is used of each limit."""
    cost, logs, total, used = 0.0, 0.0, 0, {}
    for w, its in zip(workloads, machines, strict=True):
        for pool, n in its.items():
            option = w.options[pool]
            assert option.cost is not None
            cost, logs, total = cost + n * option.cost, logs + n * math.log(option.performance), total + n
            for name, amount in option.uses.items():
                used[name] = used.get(name, 0.0) + n * amount
    return cost, logs / total, used


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("cheapest", [False, True])
def test_no_assignment_of_small_cases_is_better(cheapest: bool, split: bool) -> None:
    n_feasible = n_infeasible = 0
    for seed in range(40):
        workloads, limits = drawn(seed)
        kept = [
            figures(workloads, machines)
            for machines in every_assignment(workloads, split=split)
            if all(figures(workloads, machines)[2].get(m.name, 0.0) <= m.most + 1e-9 for m in limits)
        ]
        if not kept:
            n_infeasible += 1
            with pytest.raises(InputError, match="do not fit"):
                place_jointly(workloads, limits, cheapest=cheapest, split=split)
            continue
        n_feasible += 1
        found = place_jointly(workloads, limits, cheapest=cheapest, split=split)
        cost, logs, used = figures(workloads, [found.machines[w.name] for w in workloads])
        assert [sum(found.machines[w.name].values()) for w in workloads] == [w.count for w in workloads]
        assert found.cost == pytest.approx(cost)
        assert math.log(found.performance) == pytest.approx(logs)
        assert all(used.get(m.name, 0.0) <= m.most + 1e-6 for m in limits)
        if cheapest:  # the second goal may cost a ten-thousandth for each factor e of performance
            assert cost <= min(k[0] for k in kept) * (1 + 5e-4)
        else:
            assert logs >= max(k[1] for k in kept) - 5e-4
    assert n_feasible >= 10
    assert n_infeasible >= 3


def test_of_equally_fast_pools_the_cheapest_is_taken_and_of_equally_cheap_ones_the_fastest() -> None:
    equal = {"dear": Option(300.0, 8.0), "cheap": Option(300.0, 1.5)}
    assert place_jointly([JointWorkload("w", 3, equal)], [], cheapest=False).machines == {"w": {"cheap": 3}}
    same_price = {"slow": Option(100.0, 2.0), "fast": Option(200.0, 2.0)}
    assert place_jointly([JointWorkload("w", 3, same_price)], [], cheapest=True).machines == {"w": {"fast": 3}}


def test_the_limit_that_cannot_be_kept_is_named_with_what_is_lacking() -> None:
    options = {"ssd": Option(100.0, 1.0, {"space of ssd": 100.0, "time": 0.1})}
    limits = [Limit("space of ssd", 250.0, lambda n: f"{n:g} GB"), Limit("time", 1.0, str)]
    with pytest.raises(
        InputError, match=r"space of ssd is short: .* needs 300 GB of 250 GB, 20 % too much"
    ) as caught:
        place_jointly([JointWorkload("w", 3, options)], limits, cheapest=True)
    assert "time" not in caught.value.what


def test_a_split_workload_uses_what_one_pool_cannot_hold() -> None:
    options = {"a": Option(100.0, 1.0, {"a": 1.0}), "b": Option(100.0, 1.0, {"b": 1.0})}
    limits = [Limit("a", 2.0, str), Limit("b", 2.0, str)]
    with pytest.raises(InputError, match="do not fit"):
        place_jointly([JointWorkload("w", 4, options)], limits, cheapest=True)
    assert place_jointly([JointWorkload("w", 4, options)], limits, cheapest=True, split=True).machines == {
        "w": {"a": 2, "b": 2}
    }
