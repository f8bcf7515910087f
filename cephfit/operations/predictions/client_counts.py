"""Predict for a number of clients: from baselines of that number, or else by the scaling law."""

from __future__ import annotations

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
    from cephfit.mapper.extrapolation.scaling_law import ScaledBaselines
    from cephfit.sweep.concurrent_clients import ClientRates


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
        """The prediction as JSON values, with the scaling law where it was used."""
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
    predictions = ranked(scaled.with_its_error(model_predictor), profile, scaled.baselines)
    predictions = replace(predictions, notes=(*scaled.notes(), *predictions.notes))
    return PredictionForClients(predictions, scaled.baselines, None, scaled)


_TOGETHER = 0.9
"""Share of the time that all clients run, below which the rates of some are partly those of fewer clients."""


def not_together(samples: Iterable[WorkloadSample]) -> str:
    """Return a sentence on ok runs in which the clients did not run for the same time; empty if there are none."""
    from cephfit.core.values.sample import State
    from cephfit.sweep.verification import TOGETHER

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
    from cephfit.sweep.verification import client_rates_of

    found: dict[str, list[ClientRates]] = {}
    for sample in samples:
        if sample.state is State.OK and (rates := client_rates_of(sample)) is not None:
            found.setdefault(sample.configuration, []).append(rates)
    return {name: ClientRates.mean(runs) for name, runs in found.items()}
