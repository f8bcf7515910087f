"""Rank configurations by objectives other than throughput: latency, percentiles, reads, writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cephfit.core.errors import InputError

if TYPE_CHECKING:
    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.prediction import PredictionSet
    from cephfit.core.values.profile import Profile
    from cephfit.mapper.decisions.objectives import Judged, Objective

_P99 = 99.0
_LATENCY_NOTE = (
    "latencies are those under the load of the sweep, not at the depth of the workload; intervals have the "
    "scatter of the measurements, not an error of a model"
)
_LITTLE_NOTE = "a CSV file has no latencies: they are clients x depth / rate (Little's law)"


def _of_the_whole(found: PredictionSet) -> list[str]:
    """Return the notes that hold for one figure of the whole mix: none about single cells."""
    return [note for note in found.notes if not any(word in note for word in ("4K-read", "cells were measured"))]


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

    def weighted(self, profile: Profile) -> Profile:
        """Return the workload with the weight of its reads."""
        from cephfit.mapper.decisions.objectives import reads_weighted

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


def no_costs(_ranked: Ranked, _wanted: Wanted) -> Judged:
    """Refuse to judge by cost.

    Raises:
        InputError: always.
    """
    raise InputError(
        "costs need prices and layouts of pools",
        where="objective cost",
        remedy="use `cephfit map --objective cost` with --price and --placement",
    )


@dataclass(frozen=True, slots=True)
class Ranked:
    """The workload and the configurations that are ranked, by every objective alike.

    Attributes:
        profile: of the workload.
        baselines: the rates of the configurations.
        location: of the store or the CSV file with these rates.
        run_id: of the run in the store.
        load: of the sweep file.
        model: name of the model of throughput.
        confidence: joint level of all intervals of one objective.
    """

    profile: Profile
    baselines: Baselines
    location: str
    run_id: str | None
    load: str
    model: str
    confidence: float

    def answers(self, wanted: Wanted, by_cost: Callable[[Ranked, Wanted], Judged] = no_costs) -> Answers:
        """Return the configurations by every objective that was asked for.

        Args:
            wanted: the objectives.
            by_cost: judges by cost.

        Raises:
            InputError: an objective cannot be judged from these figures.
        """
        from cephfit.mapper.decisions.objectives import Objective, dominated

        objectives = [Objective(name) for name in wanted.names]
        judged = tuple(
            by_cost(self, wanted) if o is Objective.COST else self._by(o, wanted.weighted(self.profile))
            for o in objectives
        )
        return Answers(judged, dominated(judged) if len(judged) > 1 else {}, wanted.reads_matter)

    def _by(self, objective: Objective, weighted: Profile) -> Judged:
        from cephfit.core.values.cells import Op
        from cephfit.mapper.decisions.objectives import Objective, only

        if objective is Objective.THROUGHPUT:
            return self._predicted(objective, weighted)
        if objective in (Objective.READ, Objective.WRITE):
            return self._predicted(objective, only(self.profile, Op(objective.value)))
        return self._by_latency(objective, weighted)

    def _predicted(self, objective: Objective, profile: Profile) -> Judged:
        from cephfit.mapper import predictor
        from cephfit.mapper.decisions.contrasts import ranked, worse_than
        from cephfit.mapper.decisions.objectives import Judged

        chosen = predictor(self.model, confidence=self.confidence, with_error=True)
        predictions = ranked(chosen, profile, self.baselines)
        return Judged(objective, predictions, worse_than(chosen, profile, self.baselines, predictions))

    def _by_latency(self, objective: Objective, weighted: Profile) -> Judged:
        from cephfit.mapper import predictor
        from cephfit.mapper.decisions.contrasts import ranked, worse_than
        from cephfit.mapper.decisions.objectives import Judged, Objective
        from cephfit.results.statistics.workload_rate import (
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
            speeds = mean_speeds(weighted, self.baselines, samples, load=self.load)
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
