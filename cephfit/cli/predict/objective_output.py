"""Objectives other than throughput: the options of `cephfit map`, their computation, and what it prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cephfit.cli.options.common_options import Finite
from cephfit.cli.terminal.output import print_table, range_text

if TYPE_CHECKING:
    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.prediction import Prediction, PredictionSet
    from cephfit.core.values.profile import Profile
    from cephfit.mapper.objectives import Judged, Objective

_NAMES = ("throughput", "latency", "p99", "read", "write", "cost")
_P99 = 99.0
_Command = TypeVar("_Command", bound=Callable[..., Any])


def objective_options(command: _Command) -> _Command:
    """Adds ``--objective``, ``--reads-matter``, ``--price`` and ``--placement``."""
    for option in (
        click.option(
            "--placement",
            "placements",
            multiple=True,
            metavar="CONFIGURATION=CLASS:COPIES",
            help="For cost: layout of a configuration that does not state it. Repeatable.",
        ),
        click.option(
            "--price",
            "prices",
            multiple=True,
            metavar="CLASS=N",
            help="For cost: relative price of a byte on a device class. Repeatable.",
        ),
        click.option(
            "--reads-matter",
            type=Finite(min=0, min_open=True),
            metavar="N",
            help="Count the time of reads N times, that of writes once.",
        ),
        click.option(
            "--objective",
            "objectives",
            multiple=True,
            type=click.Choice(_NAMES),
            help="What to rank by. Several: mark the configurations that no other one certainly beats in all of "
            "them.  [default: throughput]",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Wanted:
    """The objectives that a user asked for.

    Attributes:
        names: without repetition, in the order of the options; empty: only the usual answer.
        reads_matter: weight of the time of reads; None: 1.
        prices: as given.
        placements: as given.
    """

    names: tuple[str, ...]
    reads_matter: float | None
    prices: tuple[str, ...]
    placements: tuple[str, ...]

    @classmethod
    def of(
        cls,
        objectives: Sequence[str],
        reads_matter: float | None,
        prices: tuple[str, ...],
        placements: tuple[str, ...],
    ) -> Wanted:
        """Raises:
        click.UsageError: an option has no effect on the objectives.
        """
        names = tuple(dict.fromkeys(objectives)) or (("throughput",) if reads_matter is not None else ())
        if reads_matter is not None and not {"throughput", "latency"} & set(names):
            raise click.UsageError("--reads-matter weighs times: it needs --objective throughput or latency")
        if (prices or placements) and "cost" not in names:
            raise click.UsageError("--price and --placement need --objective cost")
        return cls(names, reads_matter, prices, placements)

    def weighted(self, profile: Profile) -> Profile:
        """Return the workload with the weight of its reads."""
        from cephfit.mapper.objectives import reads_weighted

        return profile if self.reads_matter is None else reads_weighted(profile, self.reads_matter)


@dataclass(frozen=True, slots=True)
class Answers:
    """The configurations by each objective.

    Attributes:
        judged: in the order of the options.
        dominated: configuration to one that certainly beats it in all objectives; empty for one objective.
        reads_matter: weight of the time of reads; None: 1.
    """

    judged: tuple[Judged, ...]
    dominated: dict[str, str]
    reads_matter: float | None

    @property
    def compared(self) -> tuple[str, ...]:
        """Configurations that have all objectives, in the order of the first one."""
        first = self.judged[0].names if self.judged else ()
        return tuple(n for n in first if all(n in judged.names for judged in self.judged))

    def to_json(self) -> dict[str, Any]:
        """The answers as JSON values; nothing without objectives."""
        if not self.judged:
            return {}
        return {
            "reads_matter": self.reads_matter,
            "objectives": [judged.to_json() for judged in self.judged],
            "pareto_front": [n for n in self.compared if n not in self.dominated],
            "dominated": self.dominated,
        }


def answers_of(
    wanted: Wanted,
    model: str,
    confidence: float,
    profile: Profile,
    baselines: Baselines,
    location: str,
    run_id: str | None,
    load: str,
) -> Answers:
    """Return the configurations by every objective that was asked for.

    Raises:
        InputError: an objective cannot be judged from these figures.
    """
    from cephfit.mapper.objectives import Objective, dominated

    judge = _Judge(wanted, model, confidence, profile, baselines, location, run_id, load)
    judged = tuple(judge.by(Objective(name)) for name in wanted.names)
    return Answers(judged, dominated(judged) if len(judged) > 1 else {}, wanted.reads_matter)


@dataclass(frozen=True, slots=True)
class _Judge:
    """What all objectives are judged from; see ``answers_of``."""

    wanted: Wanted
    model: str
    confidence: float
    profile: Profile
    baselines: Baselines
    location: str
    run_id: str | None
    load: str

    def by(self, objective: Objective) -> Judged:
        from cephfit.core.values.cells import Op
        from cephfit.mapper.objectives import Objective, only

        if objective is Objective.THROUGHPUT:
            return self._predicted(objective, self.wanted.weighted(self.profile))
        if objective in (Objective.READ, Objective.WRITE):
            return self._predicted(objective, only(self.profile, Op(objective.value)))
        return self._by_cost() if objective is Objective.COST else self._by_latency(objective)

    def _predicted(self, objective: Objective, profile: Profile) -> Judged:
        from cephfit.mapper import predictor
        from cephfit.mapper.contrasts import ranked, worse_than
        from cephfit.mapper.objectives import Judged

        chosen = predictor(self.model, confidence=self.confidence, with_error=True)
        predictions = ranked(chosen, profile, self.baselines)
        return Judged(objective, predictions, worse_than(chosen, profile, self.baselines, predictions))

    def _by_latency(self, objective: Objective) -> Judged:
        from cephfit.core.errors import InputError
        from cephfit.mapper import predictor
        from cephfit.mapper.contrasts import ranked, worse_than
        from cephfit.mapper.objectives import Judged, Objective
        from cephfit.results.statistics.mix_latency import (
            mean_speeds,
            milliseconds,
            percentile_speeds,
            whole_mix,
        )
        from cephfit.results.store.sample_store import Store
        from cephfit.results.tables.baseline_csv import is_store

        samples = None
        if is_store(self.location):
            with Store.open(self.location) as store:
                samples = store.samples(store.run(self.run_id).run_id)
        if objective is Objective.LATENCY:
            speeds = mean_speeds(self.wanted.weighted(self.profile), self.baselines, samples, load=self.load)
        elif samples is None:
            raise InputError(
                "a CSV file of rates has no percentiles of latency",
                where="--objective p99",
                remedy="give the store of the sweep as --baselines, or use --objective latency",
            )
        else:
            speeds = percentile_speeds(self.profile, self.baselines, samples, _P99, load=self.load)
        whole, chosen = whole_mix(self.profile), predictor("time", confidence=self.confidence)
        found = ranked(chosen, whole, speeds)
        slower = worse_than(chosen, whole, speeds, found)
        notes = (*_of_the_whole(found), _LATENCY_NOTE, *([] if samples is not None else [_LITTLE_NOTE]))
        return Judged(objective, replace(found, notes=notes), slower, "ms", milliseconds(speeds, self.confidence))

    def _by_cost(self) -> Judged:
        from cephfit.ceph.pools.pool_plan import cost_of
        from cephfit.cli.predict.place_command import parse_prices, pool_spaces, refuse_unknown_costs
        from cephfit.mapper import predictor
        from cephfit.mapper.objectives import by_cost

        spaces = pool_spaces(
            self.location, self.run_id, self.wanted.placements, self.baselines.configurations, only_pools=False
        )
        prices = parse_prices(self.wanted.prices, spaces)
        costs = {name: cost_of(space, prices) if space else None for name, space in spaces.items()}
        refuse_unknown_costs([name for name, cost in costs.items() if cost is None], spaces)
        predictions = predictor(self.model, confidence=self.confidence).predict(self.profile, self.baselines)
        found = by_cost({name: cost for name, cost in costs.items() if cost is not None}, predictions)
        if self.wanted.prices:
            return found
        return replace(found, predictions=replace(found.predictions, notes=(_EQUAL_PRICES,)))


_LATENCY_NOTE = (
    "latencies are those under the load of the sweep, not at the depth of the workload; intervals have the "
    "scatter of the measurements, not an error of a model"
)
_EQUAL_PRICES = (
    "without --price, a byte costs 1 on every device class: the cost is the bytes on disks per byte of data"
)
_LITTLE_NOTE = "a CSV file has no latencies: they are clients x depth / rate (Little's law)"


def _of_the_whole(found: PredictionSet) -> list[str]:
    """Return the notes that hold for one figure of the whole mix: none about single cells."""
    return [note for note in found.notes if not any(word in note for word in ("4K-read", "cells were measured"))]


def print_answers(answers: Answers, confidence: float) -> None:
    """Print one table for one objective, else the Pareto front and all objectives next to each other."""
    if not answers.judged:
        return
    if len(answers.judged) == 1:
        _print_one(answers.judged[0], answers.reads_matter, confidence)
    else:
        _print_several(answers, confidence)
    click.echo()


def _print_one(judged: Judged, reads_matter: float | None, confidence: float) -> None:
    from cephfit.mapper.objectives import default_of

    found = judged.predictions
    weight = f", reads counted {reads_matter:g} times" if reads_matter is not None else ""
    best, default = found.of(found.best), default_of(found)
    lead = "the default: nothing is distinguishably better" if found.best == default else _relative(best)
    click.echo(f"Best by {judged.objective.value}{weight}: {found.best}, {lead}")
    if found.as_good:
        click.echo(f"Not distinguishable from {found.best}: {', '.join(found.as_good)}")
    columns = ["configuration", "relative", f"{100 * confidence:g} % interval", "verdict"]
    rows = [
        [p.configuration, f"{p.relative:.1f}", range_text(p.low, p.high), p.verdict.value]
        for p in found.predictions
    ]
    if judged.values:
        columns.insert(1, judged.unit)
        for row in rows:
            row.insert(1, f"{judged.values[row[0]].value:.3g}")
    print_table(columns, rows, right=range(1, len(columns) - 1))
    _print_notes([judged])


def _print_several(answers: Answers, confidence: float) -> None:
    names = ", ".join(judged.objective.value for judged in answers.judged)
    front = [n for n in answers.compared if n not in answers.dominated]
    click.echo(f"Pareto front by {names}: {', '.join(front)}")
    if answers.reads_matter is not None:
        click.echo(f"The time of reads counts {answers.reads_matter:g} times.")
    columns = ["configuration"]
    for judged in answers.judged:
        columns += [judged.objective.value, f"{100 * confidence:g} % interval"]
    rows = []
    for name in answers.compared:
        cells = [name]
        for judged in answers.judged:
            p = judged.predictions.of(name)
            cells += [f"{p.relative:.1f}", "exact" if judged.is_exact else range_text(p.low, p.high)]
        rows.append([*cells, f"beaten by {w}" if (w := answers.dominated.get(name)) else "on the front"])
    print_table([*columns, ""], rows, right=range(1, len(columns)))
    click.echo("Each figure is relative, the default = 100, more is better: a latency or a cost of half is 200.")
    click.echo("Beaten: certainly worse in every objective, in a direct comparison with the named one.")
    lacking = {n for judged in answers.judged for n in judged.names} - set(answers.compared)
    if lacking:
        click.echo(f"Not compared, because an objective is not known: {', '.join(sorted(lacking))}")
    _print_notes(answers.judged)


def _print_notes(judged: Sequence[Judged]) -> None:
    several = len(judged) > 1
    of_notes: dict[str, list[str]] = {}
    for one in judged:
        for note in dict.fromkeys(one.predictions.notes):
            of_notes.setdefault(note, []).append(one.objective.value)
    for note, names in of_notes.items():
        click.echo(f"Note: {', '.join(names)}: {note}" if several else f"Note: {note}")


def _relative(p: Prediction) -> str:
    return f"{p.relative:.0f} with the default = 100, more is better ({range_text(p.low, p.high)})"
