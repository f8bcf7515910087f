"""How often the predictor's intervals and verdicts are right: the tables of docs/evidence.md, as Markdown.

Sweeps are drawn from a known truth (tests/support/synthetic_sweeps.py) and given to the package's own predictors.
The same seed and number of sweeps print the same figures.

Run with: .venv/bin/python benchmarks/interval_coverage.py --table says --sweeps 2000
"""

import argparse
import itertools
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from lost_constructions import (
    Construction,
    bonferroni_over_max_t,
    moderated_with_tau2,
    own_variance,
    parts_held_independent,
    pooled_only,
    prior_estimated,
    prior_of_8,
)
from scipy.stats import binomtest

from cephfit.core.statistics.variance import spread_of
from cephfit.core.values.cells import CELLS
from cephfit.core.values.prediction import Verdict
from cephfit.core.values.profile import Profile
from cephfit.mapper.models.mix_predictor import MixPredictor

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from synthetic_sweeps import (  # noqa: E402
    TYPICAL_IOPS,
    Found,
    Kept,
    Noise,
    baselines_of,
    default_in_other_rounds,
    draw,
    lacking_a_round,
    lacking_repeats_here_and_there,
    profiles,
    race,
    search,
    simulate,
)

UNEVEN, VERY_UNEVEN = Noise(uneven=math.log(1.5)), Noise(uneven=math.log(2))
NOISES = {
    "equal between configurations": Noise(),
    "differs between configurations by x or / 1.5 (1 sigma)": UNEVEN,
    "differs by x or / 2": VERY_UNEVEN,
    "the default 2.5x as noisy": Noise(noisy=2.5),
    "every application shifts all cells by 1 %": Noise(applied=0.01),
    "every application shifts all cells by 2 %": Noise(applied=0.02),
    "rounds drift by 3 %": Noise(drift=0.03),
    "outliers (t with 4 degrees of freedom)": Noise(heavy=True),
}
DESIGNS: dict[str, tuple[int, Kept | None]] = {
    "nothing missing, 3 rounds": (3, None),
    "one lacks a round of 3": (3, lacking_a_round),
    "the default in rounds 2, 3, others in 1, 2": (3, default_in_other_rounds),
    "each lacks one repeat of 3 in every cell": (3, lacking_repeats_here_and_there),
    "race: 9, 9, 4, 2, 2, 2, 2 rounds": (9, race),
    "search: default 12 rounds, six trials two of their own": (12, search),
}
"""Rounds, and which of them there are; six compared."""
LOST_NOISES = {
    "equal noise": Noise(),
    "noise x or / 2 between configurations": VERY_UNEVEN,
    "default 2.5x noisier": Noise(noisy=2.5),
    "shift of 2 % per application": Noise(applied=0.02),
    "round drift 3 %": Noise(drift=0.03),
}
UNBALANCED_NOISES = tuple(reversed(tuple(LOST_NOISES)[1:]))
CONSTRUCTIONS: dict[str, Construction] = {
    "each cell's own variance (Welch)": own_variance,
    "pooled over configurations only": pooled_only,
    "moderated, prior 4, with tau2": moderated_with_tau2,
    "all five steps, prior 8": prior_of_8,
    "all five steps, prior estimated (4-30)": prior_estimated,
    "**all five steps, prior 4 (chosen)**": spread_of,
}
COMPARED, REPEATS = (6, 3, 2, 1), (2, 3)
POWER_CASES = ((2, 0.01), (2, 0.03), (2, 0.05), (3, 0.01), (3, 0.03), (3, 0.05), (5, 0.03), (5, 0.05))
"""Repeats and every cell's coefficient of variation."""
EFFECTS = (0.02, 0.05, 0.10, 0.20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = {"says": print_says, "unbalanced": print_unbalanced, "power": print_power, "lost": print_lost}
    parser.add_argument("--table", choices=tuple(tables), required=True, help="which table to print")
    parser.add_argument(
        "--sweeps", type=int, default=2000, help="synthetic sweeps for every figure (default 2000)"
    )
    parser.add_argument(
        "--seed", type=int, default=2017, help="of the first case; each further one takes the next"
    )
    chosen = parser.parse_args()
    if chosen.sweeps < 1:
        parser.error(f"--sweeps is {chosen.sweeps}: at least one is needed")
    tables[chosen.table](chosen.sweeps, chosen.seed)


def print_says(n_sweeps: int, first_seed: int) -> None:
    """Sweeps in which a copy of the default was called different, and intervals that held a true difference."""
    seeds = itertools.count(first_seed)
    columns = list(itertools.product(COMPARED, REPEATS))
    _print_row("noise", *(f"{compared} compared, {repeats} repeats" for compared, repeats in columns))
    _print_rule(1 + len(columns))
    covered = 1.0
    for name, noise in NOISES.items():
        found: list[Found] = []
        for compared, repeats in columns:
            found.append(
                simulate(
                    "time",
                    noise,
                    n_sweeps=n_sweeps,
                    n_compared=compared,
                    repeats=repeats,
                    effect=0.0,
                    seed=next(seeds),
                )
            )
        covered = min(
            [covered, *(f.covered for f, (compared, _) in zip(found, columns, strict=True) if compared == 6)]
        )
        _print_row(name, *(_marked(f.any_false) for f in found))
    print(f"\nFewest single intervals that held the true value, six compared: {_percent(covered)}\n")

    _print_row("six that differ by 10 % per cell: all intervals held", "2 repeats", "3 repeats")
    _print_rule(3)
    for model, (name, noise) in itertools.product(("time", "meyer"), (("1.5", UNEVEN), ("2", VERY_UNEVEN))):
        found = [
            simulate(model, noise, n_sweeps=n_sweeps, n_compared=6, repeats=repeats, effect=0.10, seed=next(seeds))
            for repeats in REPEATS
        ]
        _print_row(f"`{model}`, noise differs by x or / {name}", *(_percent(f.all_covered) for f in found))
    print()
    _print_by_workload(n_sweeps, seeds)


def _print_by_workload(n_sweeps: int, seeds: Iterator[int]) -> None:
    """Few compared under very uneven noise, each workload by itself: where the promise is nearest to breaking."""
    columns = list(itertools.product(COMPARED[1:], REPEATS))
    _print_row(
        "noise differs by x or / 2, by workload",
        *(f"{compared} compared, {repeats} repeats" for compared, repeats in columns),
    )
    _print_rule(1 + len(columns))
    for workload in profiles():
        found = [
            simulate(
                "time",
                VERY_UNEVEN,
                n_sweeps=n_sweeps,
                n_compared=compared,
                repeats=repeats,
                effect=0.0,
                seed=next(seeds),
                workloads=(workload,),
            )
            for compared, repeats in columns
        ]
        _print_row(workload.name, *(_marked(f.any_false) for f in found))


def print_unbalanced(n_sweeps: int, first_seed: int) -> None:
    """Designs in which not all configurations have the same rounds: sweeps in which any copy was called different.

    The workload of many cells, which shifts that all cells share deceive most; with Wilson's 95 % interval.
    """
    seeds = itertools.count(first_seed)
    _print_row("noise", *DESIGNS)
    _print_rule(1 + len(DESIGNS))
    for name in UNBALANCED_NOISES:
        texts = []
        for repeats, kept in DESIGNS.values():
            found = simulate(
                "time",
                LOST_NOISES[name],
                n_sweeps=n_sweeps,
                n_compared=6,
                repeats=repeats,
                effect=0.0,
                seed=next(seeds),
                workloads=profiles()[:1],
                kept=kept,
            )
            ends = binomtest(round(found.any_false * n_sweeps), n_sweeps).proportion_ci(method="wilson")
            texts.append(f"{_marked(found.any_false)} ({100 * ends.low:.1f} to {100 * ends.high:.1f})")
        _print_row(name, *texts)


def print_power(n_sweeps: int, first_seed: int) -> None:
    """Of six compared, four are better by 2, 5, 10 and 20 % in every cell and two equal the default.

    A variance does not depend on the true means, so one sweep serves all four.
    """
    _print_row(
        "repeats", "CV", *(f"{effect:.0%} better".replace("%", " %") for effect in EFFECTS), "noise floor, points"
    )
    _print_rule(3 + len(EFFECTS))
    gains = np.log1p([0.0, *EFFECTS, 0.0, 0.0])
    truth = np.log(TYPICAL_IOPS) + gains[:, None]
    model_predictor = MixPredictor("time")
    for seed, (repeats, cv) in enumerate(POWER_CASES, start=first_seed):
        rng = np.random.default_rng(seed)
        n_found = np.zeros(len(EFFECTS))
        floors: list[float] = []
        for _ in range(n_sweeps):
            measured = baselines_of(np.exp(draw(rng, truth, Noise(lowest=cv, highest=cv), repeats)))
            answer = model_predictor.predict(profiles()[0], measured)
            n_found += [answer.of(f"C{j}").verdict is Verdict.BETTER for j in range(1, 1 + len(EFFECTS))]
            floors.append(answer.noise_floor)
        shares = (f"{100 * share:.0f}" for share in n_found / n_sweeps)
        _print_row(repeats, f"{100 * cv:.0f} %", *shares, f"{statistics.median(floors):.1f}")


def print_lost(n_sweeps: int, first_seed: int) -> None:
    """The constructions side by side, over the same sweeps and the thesis's five workloads."""
    folder = ROOT / "docs" / "examples" / "profiles"
    workloads = [Profile.loads(path.read_text(), where=path.name) for path in sorted(folder.glob("*.json"))]
    _print_constructions(CONSTRUCTIONS, workloads, n_sweeps, n_compared=6, first_seed=first_seed)
    print("\nOne configuration compared:\n")
    pair: dict[str, Construction] = {
        "pooled and own part held independent": parts_held_independent,
        "**chosen**": spread_of,
    }
    _print_constructions(pair, workloads, n_sweeps, n_compared=1, first_seed=first_seed + len(LOST_NOISES))
    print()
    for df in (1e6, 20.0):
        wider = 100 * (bonferroni_over_max_t(6, df) - 1)
        print(
            f"Bonferroni's intervals, six compared, {df:.0f} degrees of freedom: {wider:.1f} % wider than max-t's"
        )


def _print_constructions(
    constructions: Mapping[str, Construction],
    workloads: Sequence[Profile],
    n_sweeps: int,
    *,
    n_compared: int,
    first_seed: int,
) -> None:
    """Two repeats: sweeps in which any copy of the default was called different / median half width in percent."""
    shown: dict[str, list[str]] = {name: [] for name in constructions}
    truth = np.tile(np.log(TYPICAL_IOPS), (1 + n_compared, 1))
    assert truth.shape == (1 + n_compared, len(CELLS))
    for seed, noise in enumerate(LOST_NOISES.values(), start=first_seed):
        rng = np.random.default_rng(seed)
        n_false = dict.fromkeys(constructions, 0)
        widths: dict[str, list[float]] = {name: [] for name in constructions}
        for index in range(n_sweeps):
            measured = baselines_of(np.exp(draw(rng, truth, noise, 2)))
            for name, construction in constructions.items():
                answer = MixPredictor("time", spread_of=construction).predict(
                    workloads[index % len(workloads)], measured
                )
                others = [p for p in answer.predictions if p.verdict is not Verdict.DEFAULT]
                n_false[name] += any(p.verdict is not Verdict.INDISTINGUISHABLE for p in others)
                widths[name] += [100 * (p.high / p.relative - 1) for p in others]
        for name, texts in shown.items():
            texts.append(f"{_marked(n_false[name] / n_sweeps)} / {statistics.median(widths[name]):.1f}")
    _print_row("construction", *LOST_NOISES)
    _print_rule(1 + len(LOST_NOISES))
    for name, texts in shown.items():
        _print_row(name, *texts)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _marked(share: float) -> str:
    """In bold where it is more than the 5 % promised."""
    return f"**{_percent(share)}**" if share > 0.05 else _percent(share)


def _print_row(*texts: object) -> None:
    print(f"| {' | '.join(map(str, texts))} |", flush=True)


def _print_rule(n_columns: int) -> None:
    print("|" + "---|" * n_columns, flush=True)


if __name__ == "__main__":
    main()
