"""Predict for a number of clients: from baselines of that number, or else by the scaling law."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cephfit.core.errors import InputError

if TYPE_CHECKING:
    from cephfit.core.protocols import Predictor
    from cephfit.core.values.prediction import PredictionSet
    from cephfit.core.values.profile import Profile
    from cephfit.mapper.scaling_law import ScaledBaselines


@dataclass(frozen=True, slots=True)
class PredictionForClients:
    """A prediction for a number of clients.

    Attributes:
        predictions: of every configuration.
        load: the load with this number of clients; None if none was measured.
        scaled: the law's rates; None if the number was measured.
    """

    predictions: PredictionSet
    load: str | None
    scaled: ScaledBaselines | None

    def to_json(self) -> dict[str, Any]:
        """The prediction as JSON values, with the scaling law where it was used."""
        own = {} if self.scaled is None else {"scaling_law": self.scaled.to_json()}
        return {**self.predictions.to_json(), **own}


def ranked_for_clients(
    model_predictor: Predictor, profile: Profile, location: str, run_id: str | None, load: str, n_clients: int
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

    Raises:
        InputError: the location is a CSV file; the number was not measured and fewer than two others were; the load
            has a rate limit, which hides how rates scale; as ``Predictor.predict``.
        StoreError: the store cannot be used.
    """
    from cephfit.mapper.contrasts import ranked
    from cephfit.mapper.scaling_law import LEAST_COUNTS, baselines_at
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
        return PredictionForClients(ranked(model_predictor, profile, baselines), name, None)
    if len(found) < LEAST_COUNTS:
        (measured,) = found
        raise InputError(
            f"{title_of(load)} was measured with {measured} clients only, so nothing is known about {n_clients}",
            where=source,
            remedy="add loads that differ in `clients:` alone to the sweep file, at least two numbers of clients",
        )
    if limit := found[min(found)][1].measured_load.limit:
        raise InputError(
            f"{title_of(load)} has a rate limit of {limit} per client, so its rates do not show how storage scales",
            where=source,
            remedy="choose a load without a limit with --load",
        )
    scaled = baselines_at({n: baselines for n, (_, baselines) in found.items()}, n_clients)
    predictions = ranked(scaled.with_its_error(model_predictor), profile, scaled.baselines)
    predictions = replace(predictions, notes=(*scaled.notes(), *predictions.notes))
    return PredictionForClients(predictions, None, scaled)
