"""Whether a race of configurations picks what the full plan picks, and at what part of its runs.

The samples are those of one real sweep, recorded in full: seven configurations of the one-machine lab, 16 cells,
nine repeats (data/lab_nine_repeats.csv, its sweep file next to it). Every repetition makes another sweep of nine
repeats from them, and the full plan and the race both decide on it:

- order: the recorded rounds in another order, so that the race sees other ones first;
- bootstrap: for every configuration nine of its recorded rounds, drawn with replacement.

The full plan's answer is the mapper's: the best and the worst that are distinguishable from the default at 95 %,
the default where none is. `same` counts races with the very same answer, `equal` those with another one that
the full plan itself cannot distinguish from its own, `given up` those that answer "the default" where the full
plan distinguishes a configuration from it, `wrong` those with a configuration that the full plan distinguishes
from its own answer.

Run with: .venv/bin/python benchmarks/racing.py --repetitions 40
"""

import argparse
import csv
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, Cell
from cephfit.core.values.prediction import Verdict
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.mapper import predictor
from cephfit.sweep.declaration.sweep_file import read_sweep
from cephfit.sweep.execution.rounds import Decided, begin, decide, saved_runs
from cephfit.sweep.sweep_plan import Goal, RaceFor, Stopping, Sweep, cell_profile, plan_of

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "data" / "lab_nine_repeats.csv"
PROFILES = HERE.parent / "docs" / "examples" / "profiles"

Rates = Mapping[tuple[str, Cell], Sequence[float]]
"""IOPS of all clients together, one per round."""

FIELDS: Mapping[str, tuple[str, ...]] = {
    "all seven": (),
    "without ssd": ("ssd",),
    "without ssd and journaling": ("ssd", "journaling"),
}
"""Configurations left out: the two that stand out make a race easy."""


ENDS = ("same", "equal", "given up", "wrong")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One repetition.

    Attributes:
        part: runs of the race over runs of the full plan.
        ends: for each answer one of ``ENDS``.
    """

    part: float
    ends: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=40, help="of every line of the tables (default 40)")
    parser.add_argument("--seed", type=int, default=2017)
    parser.add_argument("--margin", type=float, default=Stopping().margin, help="see `margin_percent`; a part")
    parser.add_argument("--model", default="time")
    parser.add_argument("--field", choices=tuple(FIELDS), help="only these configurations")
    chosen = parser.parse_args()
    rates = recorded()
    for how in ("order", "bootstrap"):
        print(f"\n| {how}: configurations, race for | runs: mean, least to most | {' | '.join(ENDS)} |")
        print("|---|---|---|---|---|---|")
        for field, omitted in FIELDS.items():
            if chosen.field not in (None, field):
                continue
            for profile in (*profiles(), None):
                sweep = sweep_of(omitted, profile, chosen.margin)
                outcomes = [
                    race(sweep, resampled(rates, how, chosen.seed + i), goal_of(profile, chosen.model))
                    for i in range(chosen.repetitions)
                ]
                print(line(f"{field}, {profile.name if profile else 'every cell'}", outcomes), flush=True)


def line(what: str, outcomes: Sequence[Outcome]) -> str:
    """One line of a table."""
    parts = [100 * o.part for o in outcomes]
    ends = [end for o in outcomes for end in o.ends]
    counts = " | ".join(f"{100 * ends.count(word) / len(ends):.1f} %" for word in ENDS)
    return f"| {what} | {statistics.mean(parts):.0f} %, {min(parts):.0f} to {max(parts):.0f} | {counts} |"


def recorded() -> Rates:
    """The recorded rates."""
    sums: dict[tuple[str, Cell], dict[int, float]] = {}
    with RECORDED.open() as file:
        for row in csv.DictReader(file):
            rounds = sums.setdefault((row["configuration"], Cell.parse(f"{row['size']}-{row['pattern']}")), {})
            rounds[int(row["run"])] = rounds.get(int(row["run"]), 0.0) + float(row["iops"])
    return {place: [rounds[i] for i in sorted(rounds)] for place, rounds in sums.items()}


def profiles() -> Iterator[Profile]:
    """The five workloads of the thesis."""
    for path in sorted(PROFILES.glob("*.json")):
        yield Profile.loads(path.read_text(), where=str(path))


def sweep_of(omitted: Sequence[str], profile: Profile | None, margin: float) -> Sweep:
    """The recorded sweep with terms for stopping."""
    sweep = read_sweep(RECORDED.with_suffix(".yaml"))
    return replace(
        sweep,
        configurations=tuple(c for c in sweep.configurations if c.name not in omitted),
        stopping=Stopping(race=RaceFor.PROFILE if profile else RaceFor.CELLS, margin=margin),
    )


def goal_of(profile: Profile | None, model: str) -> Goal:
    return Goal(lambda confidence: predictor(model, confidence=confidence), model, profile)


def resampled(rates: Rates, how: str, seed: int) -> Rates:
    """Another sweep from the recorded rounds."""
    dice = np.random.default_rng(seed)
    n = len(next(iter(rates.values())))
    names = dict.fromkeys(name for name, _ in rates)
    common = dice.permutation(n)
    rounds = {name: common if how == "order" else dice.integers(0, n, n) for name in names}
    return {(name, cell): [values[i] for i in rounds[name]] for (name, cell), values in rates.items()}


def race(sweep: Sweep, rates: Rates, goal: Goal) -> Outcome:
    """Race on these rates, and hold the answers against the full plan's."""
    samples = [
        Sample(SampleKey(name, cell, "c0", i), State.OK, Metrics(iops, iops, 1, 1, 1.0), 0, 0)
        for (name, cell), values in rates.items()
        if any(c.name == name for c in sweep.configurations)
        for i, iops in enumerate(values)
    ]
    decided = run_race(sweep, samples, goal)
    plan = plan_of(sweep)
    part = 1 - saved_runs(plan, {place: stop.after for place, stop in decided.stopped.items()}) / plan.n_runs
    ends = []
    for cell, contest in decided.contests.items():
        full = baselines_of(rates, sweep, goal.used_cells() if cell is None else (cell,))
        profile = contest.profile if cell is None else cell_profile(cell)
        answers = full_answers(full, profile, goal)
        for side in contest.sides:
            pick = side.pick if side.pick is not None else answers[side.word]  # went on to the last round
            ends.append(judged(pick, answers[side.word], full, profile, goal))
    return Outcome(part, tuple(ends))


def run_race(sweep: Sweep, samples: Sequence[Sample], goal: Goal) -> Decided:
    """All looks of a race."""
    decided = begin(sweep, goal)
    assert sweep.stopping is not None
    for measured in range(sweep.stopping.minimum, sweep.measurement.repeats):
        decided = decide(decided, sweep, samples, goal, measured=measured)
    return decided


def baselines_of(rates: Rates, sweep: Sweep, cells: Sequence[Cell]) -> Baselines:
    """All repeats of all configurations."""
    names = [c.name for c in sweep.configurations]
    kept = {
        (name, cell): Baseline(name, cell, tuple(rates[name, cell]))
        for name in names
        for cell in CELLS
        if cell in cells
    }
    return Baselines(kept, source="all nine repeats")


def full_answers(full: Baselines, profile: Profile, goal: Goal) -> Mapping[str, str]:
    """The full plan's best and worst."""
    said = goal.predictor(0.95).predict(profile, full)
    return {"best": said.best, "worst": said.worst}


def judged(pick: str, answer: str, full: Baselines, profile: Profile, goal: Goal) -> str:
    """A race's answer against the full plan's, by the full plan's own intervals."""
    if pick == answer:
        return "same"
    try:
        between = goal.predictor(0.95).predict(profile, replace(full, default=answer)).of(pick)
    except InputError:
        return "wrong"
    if between.verdict is Verdict.INDISTINGUISHABLE:
        return "equal"
    return "given up" if pick == full.default else "wrong"


if __name__ == "__main__":
    main()
