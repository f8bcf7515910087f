"""How often races of configurations err, from sweeps drawn from a known truth: the table of docs/evidence.md.

Seven configurations in 20 cells, nine repeats at most; the default and six others. Two truths:

- copies: all six equal the default, so that every pick but the default is false;
- spread: the six differ from the default by 10 % (1 sigma) per cell and by another 10 % over all cells.

Each line has, for races and for the full plan's own answer (the mapper's best and worst at 95 %, the default where
none is distinguishable): in how many sweeps a pick is not the default (copies: falsely so), or is behind the true
best, or ahead of the true worst, by more than the margin (spread). `given up` are ends at which the race answers
"the default" and the full plan does not; `undecided` those that went on through all nine repeats.

Run with: .venv/bin/python benchmarks/racing_errors.py --sweeps 300
"""

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cephfit.core.values.cells import CELLS, Cell
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.mapper import predictor
from cephfit.mapper.models.mixture import MIXERS, used_cells
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.rounds import begin, decide, saved_runs
from cephfit.sweep.sweep_plan import Goal, Sweep, plan_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from synthetic_sweeps import TYPICAL_IOPS, Noise, baselines_of, draw  # noqa: E402

Floats = NDArray[np.float64]
REPEATS, COMPARED = 9, 6
NOISES = {
    "equal between configurations": Noise(),
    "differs between configurations by x or / 2": Noise(uneven=math.log(2)),
    "the default 2.5x as noisy": Noise(noisy=2.5),
    "every application shifts all cells by 2 %": Noise(applied=0.02),
    "rounds drift by 3 %": Noise(drift=0.03),
    "outliers (t with 4 degrees of freedom)": Noise(heavy=True),
}
TRUTHS = {"copies": 0.0, "spread": 0.10}
_SWEEP = f"""
schema_version: 1
name: imagined
stopping: {{race: profile}}
measurement: {{clients: 1, volume_size: 32M, repeats: {REPEATS}, run_seconds: 1, seed: 1}}
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """One end (best or worst) of one race.

    Attributes:
        pick: the race's, None where nine repeats did not decide it.
        full: the full plan's.
        loss: by how much of its performance the true one is ahead of the race's pick.
        full_loss: the same for the full plan's.
    """

    pick: str | None
    full: str
    loss: float
    full_loss: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=300, help="of every line (default 300)")
    parser.add_argument("--seed", type=int, default=2017)
    parser.add_argument("--truth", choices=tuple(TRUTHS), help="only this one")
    chosen = parser.parse_args()
    sweep = imagined_sweep()
    assert sweep.stopping is not None
    for name, effect in TRUTHS.items():
        if chosen.truth not in (None, name):
            continue
        what = "falsely not the default: race | full plan" if effect == 0 else "wrong pick: race | full plan"
        print(f"\n| {name}: noise | {what} | given up | undecided | runs: mean |\n|---|---|---|---|---|---|")
        for noise_name, noise in NOISES.items():
            print(line(noise_name, sweep, effect, noise, chosen.sweeps, chosen.seed), flush=True)


def line(what: str, sweep: Sweep, effect: float, noise: Noise, n_sweeps: int, seed: int) -> str:
    """One line of a table: shares of sweeps for what is false, of ends for the others."""
    assert sweep.stopping is not None
    margin = sweep.stopping.margin
    dice = np.random.default_rng(seed)
    mixes = list(profiles())
    false = full_false = given_up = undecided = 0
    parts = []
    for i in range(n_sweeps):
        profile = mixes[i % len(mixes)]
        whole = dice.normal(0, effect, (COMPARED, 1)) + dice.normal(0, effect, (COMPARED, len(CELLS)))
        truth = np.log(TYPICAL_IOPS) + np.vstack([np.zeros(len(CELLS)), whole])
        iops = np.exp(draw(dice, truth, noise, REPEATS))
        ends, part = raced(sweep, profile, iops, truths(profile, np.exp(truth)))
        parts.append(part)
        if effect == 0:
            false += any(e.pick not in (None, "A") for e in ends)
            full_false += any(e.full != "A" for e in ends)
        else:
            false += any(e.pick not in (None, "A") and e.loss > margin for e in ends)
            full_false += any(e.full != "A" and e.full_loss > margin for e in ends)
        given_up += sum(e.pick == "A" and e.full != "A" for e in ends)
        undecided += sum(e.pick is None for e in ends)
    shares = (false / n_sweeps, full_false / n_sweeps, given_up / n_sweeps / 2, undecided / n_sweeps / 2)
    return f"| {what} | {' | '.join(f'{100 * s:.1f} %' for s in shares)} | {100 * statistics.mean(parts):.0f} % |"


def raced(sweep: Sweep, profile: Profile, iops: Floats, true: Mapping[str, float]) -> tuple[list[Ended], float]:
    """One race, the full plan's answer, and the race's share of the runs."""
    goal = Goal(lambda confidence: predictor("time", confidence=confidence), "time", profile)
    assert sweep.stopping is not None
    samples = [
        Sample(SampleKey(name, cell, "c0", i), State.OK, Metrics(float(v), float(v), 1, 1, 1.0), 0, 0)
        for name, cell, values in rows(iops)
        for i, v in enumerate(values)
    ]
    decided = begin(sweep, goal)
    for measured in range(sweep.stopping.minimum, REPEATS):
        decided = decide(decided, sweep, samples, goal, measured=measured)
    said = goal.predictor(0.95).predict(profile, baselines_of(iops))
    plan = plan_of(sweep)
    part = 1 - saved_runs(plan, {place: stop.after for place, stop in decided.stopped.items()}) / plan.n_runs
    ends = []
    for side in decided.contests[None].sides:
        best = max(true.values(), key=lambda v: side.sign * v)
        full = said.best if side.sign > 0 else said.worst
        losses = [(best / true[n]) ** side.sign - 1 for n in (side.pick or full, full)]
        ends.append(Ended(side.pick, full, losses[0], losses[1]))
    return ends, part


def rows(
    iops: Floats,
) -> Iterator[tuple[str, Cell, Floats]]:
    for j, row in enumerate(iops):
        for cell, values in zip(CELLS, row, strict=True):
            yield ("A" if j == 0 else f"C{j}"), cell, values


def truths(profile: Profile, iops: Floats) -> dict[str, float]:
    """True performance of every configuration for a profile, the default = 100."""
    counts = used_cells(profile, "time")
    columns = [CELLS.index(cell) for cell in counts]
    weights = np.array(list(counts.values()))
    mix = MIXERS["time"]
    return {
        "A" if j == 0 else f"C{j}": mix(weights, iops[0, columns], row[columns]).relative
        for j, row in enumerate(iops)
    }


def imagined_sweep() -> Sweep:
    sweep = parse_sweep(_SWEEP, file="imagined")
    others = tuple(Configuration(f"C{j}") for j in range(1, COMPARED + 1))
    return replace(sweep, configurations=(*sweep.configurations, *others))


def profiles() -> Iterator[Profile]:
    """The five workloads of the thesis."""
    for path in sorted((ROOT / "docs" / "examples" / "profiles").glob("*.json")):
        yield Profile.loads(path.read_text(), where=str(path))


if __name__ == "__main__":
    main()
