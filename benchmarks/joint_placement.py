"""How long a joint assignment of many workloads to a few pools takes: predictions, rates and the program.

Rates and workloads are drawn by a fixed seed, with a scatter of 3 %. Each pool has space for 1.3 times its equal
share of all data and 80 % of its time, of which all workloads on the mean pool would take half: the limits decide.
Times on the wall, the better of two.

Run with: .venv/bin/python benchmarks/joint_placement.py [--workloads 500] [--pools 8] [--split] [--cheapest]
"""

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from many_predictions import rates, workloads

from cephfit.core.units import GIB
from cephfit.core.values.profile import Profile
from cephfit.mapper.decisions.placement import JointPlacement, JointWorkload, Limit, Option, place_jointly
from cephfit.mapper.models.many_profiles import predict_many
from cephfit.results.statistics.workload_rate import RateSpreads, workload_rates

T = TypeVar("T")
ROUNDS = 2
FILL = 0.8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=500)
    parser.add_argument("--pools", type=int, default=8)
    parser.add_argument("--split", action="store_true", help="machines of a workload may have different pools")
    parser.add_argument("--cheapest", action="store_true", help="minimise the cost at 90 %% of the default")
    given = parser.parse_args()
    draws = np.random.default_rng(1)
    baselines = rates(given.pools, draws, demands=False)
    profiles = workloads(given.workloads, draws, demands=False)
    names = baselines.configurations
    counts, volumes = draws.integers(1, 50, len(profiles)), draws.uniform(10, 200, len(profiles)) * GIB
    asked, prices = draws.lognormal(0, 1, len(profiles)), np.sort(draws.uniform(1, 8, len(names)))

    def predict() -> tuple[dict[str, dict[str, float]], list[dict[str, float]]]:
        found = predict_many(profiles, baselines, "time", with_error=True)
        lows = found.low if given.cheapest else found.relative
        kept = {
            p.name: {
                n: float(found.relative[i, j]) for j, n in enumerate(found.configurations) if lows[i, j] >= 90
            }
            for i, p in enumerate(profiles)
        }
        spreads = RateSpreads.of(baselines)
        return kept, [_rates(profile, names, spreads) for profile in profiles]

    def _rates(profile: Profile, names: tuple[str, ...], spreads: RateSpreads) -> dict[str, float]:
        found = workload_rates(profile, baselines, spreads=spreads)
        return {name: found[name].accesses_per_s.mean for name in names}

    predicting, (relative, supplies) = _timed(predict)
    # All workloads on the mean pool take half of the time that the pools have.
    total = sum(float(c * a / np.mean(list(s.values()))) for c, a, s in zip(counts, asked, supplies, strict=True))
    asked = asked * len(names) * FILL / 2 / total
    jobs = [
        JointWorkload(
            profile.name,
            int(counts[i]),
            {
                name: Option(
                    value,
                    float(prices[names.index(name)] * volumes[i] / GIB),
                    {f"space {name}": float(volumes[i]), f"time {name}": float(asked[i] / supplies[i][name])},
                )
                for name, value in relative[profile.name].items()
            },
        )
        for i, profile in enumerate(profiles)
        if relative[profile.name]
    ]
    space = 1.3 * float(counts @ volumes) / len(names)
    limits = [Limit(f"space {n}", space, str) for n in names] + [Limit(f"time {n}", FILL, str) for n in names]
    solving, found = _timed(lambda: place_jointly(jobs, limits, cheapest=given.cheapest, split=given.split))
    goal = "least cost" if given.cheapest else "best performance"
    print(f"{len(jobs)} workloads, {int(counts.sum())} machines, {len(names)} pools, {goal}, split: {given.split}")
    print(f"predictions and rates {predicting:6.2f} s")
    print(f"assignment            {solving:6.2f} s, {found.gap:.2g} from the proven bound")
    print(f"together              {predicting + solving:6.2f} s; fullest: {_fullest(found, limits):.3f}")


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        found = work()
        seconds.append(time.perf_counter() - started)
    return min(seconds), found


def _fullest(found: JointPlacement, limits: list[Limit]) -> float:
    return max(found.used[limit.name] / limit.most for limit in limits)


if __name__ == "__main__":
    main()
