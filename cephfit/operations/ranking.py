"""Rank configurations by objectives other than throughput, and for other numbers of clients.

Objectives are latency, percentiles, reads and writes. Predictions for a number of clients come from baselines of
that number, or else from the scaling law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cephfit.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cephfit.core.protocols import Predictor
    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.prediction import PredictionSet
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.sample import WorkloadSample
    from cephfit.mapper.decisions.objectives import Judged, Objective
    from cephfit.mapper.extrapolation.scaling_law import ScaledBaselines
    from cephfit.sweep.concurrent_clients import ClientRates


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

    def recommended(self, by_throughput: str) -> tuple[str, ...]:
        """Return the best by the one objective, or the Pareto front of several.

        Args:
            by_throughput: the best without objectives.
        """
        if len(self.judged) > 1:
            return tuple(n for n in self.compared if n not in self.dominated)
        return (self.judged[0].predictions.best,) if self.judged else (by_throughput,)

    def to_json(self) -> dict[str, Any]:
        """Return the answers as JSON values; nothing without objectives."""
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
        from cephfit.mapper.models.mixture import STORAGE_SHARE

        chosen = predictor(self.model, confidence=self.confidence, with_error=True)
        predictions = ranked(chosen, profile, self.baselines)
        if profile is not self.profile:  # its time is not that of the workload
            notes = tuple(note for note in predictions.notes if not note.startswith(STORAGE_SHARE))
            predictions = replace(predictions, notes=notes)
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


@dataclass(frozen=True, slots=True)
class PredictionForClients:
    """A prediction for a number of clients.

    Attributes:
        predictions: of every configuration.
        baselines: that they are made from.
        load: the load with this number of clients; None if none was measured.
        scaled: the law's rates; None if the number was measured.
        note: how the prediction differs from the question; empty if it does not.
    """

    predictions: PredictionSet
    baselines: Baselines
    load: str | None
    scaled: ScaledBaselines | None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as JSON values, with the scaling law where it was used."""
        own = {} if self.scaled is None else {"scaling_law": self.scaled.to_json()}
        return {**self.predictions.to_json(), **own}


def ranked_for_clients(
    model_predictor: Predictor,
    profile: Profile,
    location: str,
    run_id: str | None,
    load: str,
    n_clients: int,
    *,
    or_other_number: bool = False,
) -> PredictionForClients:
    """Rank the configurations of a run for ``n_clients`` clients that each run the workload of the profile.

    Rates of this number of clients are used where the run has a load with it that otherwise equals ``load``. Else
    they follow the scaling law, fitted to such loads with other numbers of clients.

    Args:
        model_predictor: with or without its own error.
        profile: of one client.
        location: of a store.
        run_id: of the run; the newest if None.
        load: whose depth, mix and commits are used.
        n_clients: 1 or more.
        or_other_number: where nothing can be said about this number, predict for that of ``load``, with a note.

    Raises:
        InputError: the location is a CSV file; the number was not measured and fewer than two others were; the
            load has a rate limit, which hides how rates scale; as ``Predictor.predict``.
        StoreError: the store cannot be used.
    """
    from cephfit.mapper.decisions.contrasts import ranked
    from cephfit.mapper.extrapolation.scaling_law import LEAST_COUNTS, baselines_at
    from cephfit.results.statistics.loads import title_of
    from cephfit.results.statistics.sample_baselines import baselines_by_clients
    from cephfit.results.store.sample_store import Store
    from cephfit.results.tables.baseline_csv import is_store

    if not is_store(location):
        raise InputError(
            "the loads of a CSV file cannot be compared over numbers of clients",
            where=location,
            remedy="give the store that `cephfit sweep run` wrote, or omit --clients",
        )
    with Store.open(location) as store:
        run = store.run(run_id)
        source = f"{store.name}, run {run.run_id}"
        found = baselines_by_clients(store.samples(run.run_id), source=source, load=load)
    if n_clients in found:
        name, baselines = found[n_clients]
        return PredictionForClients(ranked(model_predictor, profile, baselines), baselines, name, None)
    limit = found[min(found)][1].measured_load.limit
    if or_other_number and (limit or len(found) < LEAST_COUNTS):
        (measured,) = (n for n, (name, _) in found.items() if name == load)
        baselines = found[measured][1]
        predictions = ranked(model_predictor, profile, baselines)
        note = (
            f"the prediction is from rates of {measured} clients at once, as none were measured with {n_clients}"
        )
        return PredictionForClients(predictions, baselines, None, None, note)
    if len(found) < LEAST_COUNTS:
        (measured,) = found
        clients = "client" if measured == 1 else "clients"
        raise InputError(
            f"{title_of(load)} was measured with {measured} {clients} only, so nothing is known about {n_clients}",
            where=source,
            remedy="add loads that differ in `clients:` alone to the sweep file, at least two numbers of clients",
        )
    if limit:
        raise InputError(
            f"{title_of(load)} has a rate limit of {limit} per client: its rates do not show how storage scales",
            where=source,
            remedy="choose a load without a limit with --load",
        )
    scaled = baselines_at({n: baselines for n, (_, baselines) in found.items()}, n_clients)
    widened = scaled.with_its_error(model_predictor)
    predictions = ranked(widened, profile, scaled.baselines)
    notes = scaled.notes(with_error=widened is not model_predictor)
    predictions = replace(predictions, notes=(*notes, *predictions.notes))
    return PredictionForClients(predictions, scaled.baselines, None, scaled)


_TOGETHER = 0.9
"""Share of the time that all clients run, below which the rates of some are partly those of fewer clients."""


def not_together(samples: Iterable[WorkloadSample]) -> str:
    """Return a sentence on ok runs in which the clients did not run for the same time; empty if there are none."""
    from cephfit.core.values.sample import State
    from cephfit.sweep.trial import TOGETHER

    shares = [s.evidence.get(TOGETHER) for s in samples if s.state is State.OK]
    apart = [share for share in shares if share is not None and share < _TOGETHER]
    if not apart:
        return ""
    return (
        f"in {len(apart)} of {len(shares)} runs not all clients ran for the whole time (in one, together for "
        f"{100 * min(apart):.0f} % of it): some rates are partly those of fewer clients"
    )


def rates_of_clients(samples: Iterable[WorkloadSample]) -> dict[str, ClientRates]:
    """Return the clients' rates under each configuration, means over its ok runs; empty with one client."""
    from cephfit.core.values.sample import State
    from cephfit.sweep.concurrent_clients import ClientRates
    from cephfit.sweep.trial import client_rates_of

    found: dict[str, list[ClientRates]] = {}
    for sample in samples:
        if sample.state is State.OK and (rates := client_rates_of(sample)) is not None:
            found.setdefault(sample.configuration, []).append(rates)
    return {name: ClientRates.mean(runs) for name, runs in found.items()}
