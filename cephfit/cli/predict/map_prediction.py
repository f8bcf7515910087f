"""Predictions of `cephfit map`, and the run behind them: its sweep, target, and baselines with further runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cephfit.core.errors import InputError
from cephfit.operations.ranking import Ranked

if TYPE_CHECKING:
    from cephfit.core.protocols import Predictor
    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.prediction import PredictionSet
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.sample import Run
    from cephfit.mapper.extrapolation.distance import Distance
    from cephfit.sweep.sweep_plan import Sweep


def baselines_with(location: str, run_id: str | None, further: Sequence[str], load: str) -> Baselines:
    """Return the baselines of a run, or of a CSV file, with the rounds of further runs.

    Raises:
        InputError: as ``open_baselines``; or the runs are of different clusters, or a configuration has other
            settings in another run.
    """
    from cephfit.results import open_baselines
    from cephfit.results.statistics.sample_baselines import joined_baselines
    from cephfit.results.store.sample_store import Store
    from cephfit.results.tables.baseline_csv import is_store
    from cephfit.sweep.declaration.sweep_file import parse_sweep

    if not further:
        return open_baselines(location, run_id, load)
    if not is_store(location):
        raise InputError("a CSV file has no further runs", where=location, remedy="leave out --with-run")
    with Store.open(location) as store:
        run, others = store.run(run_id), [store.run(other) for other in further]
        settings = {
            c.name: c.settings for c in parse_sweep(run.sweep_text, file=run.run_id, stored=True).configurations
        }
        for other in others:
            for c in parse_sweep(other.sweep_text, file=other.run_id, stored=True).configurations:
                if settings.setdefault(c.name, c.settings) != c.settings:
                    raise InputError(
                        f"configuration {c.name} has other settings in run {other.run_id}",
                        where=store.name,
                        remedy="give one of the two another name in its sweep file, and measure it again",
                    )
        return joined_baselines(store, run, others, load)


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run of a store, as the origin of a prediction.

    Attributes:
        run: the run.
        sweep: what it measured, with the configurations of an optimiser's trials.
        store: where it is stored, as on the command line.
    """

    run: Run
    sweep: Sweep
    store: str

    @classmethod
    def of(cls, location: str, run_id: str | None) -> MeasuredRun | None:
        """Return the run; None for a CSV file."""
        from cephfit.operations.measuring.run_status import known_of
        from cephfit.results.store.sample_store import Store
        from cephfit.results.tables.baseline_csv import is_store

        if not is_store(location):
            return None
        with Store.open(location) as store:
            run = store.run(run_id)
            return cls(run, known_of(store, run).sweep, location)

    @property
    def target(self) -> str:
        """The target for a further run. A simulated one has another seed: its noise would be the same again."""
        if not self.run.is_simulated:
            return self.run.target
        seeds = [int(n) for n in re.findall(r"seed=(\d+)", self.run.target)]
        options = [o for o in self.run.target.partition(":")[2].split(",") if o and not o.startswith("seed=")]
        return f"sim:{','.join([*options, f'seed={(seeds[0] if seeds else 1) + 1}'])}"

    @property
    def can_probe(self) -> bool:
        """Whether `cephfit probe` runs on its target."""
        return self.run.is_simulated or self.run.target.partition(":")[0] in ("lab", "ceph")


def example_file(output: Path | None) -> str:
    """Return the name of the sweep file in the commands that are shown."""
    return str(output) if output is not None else "next.yaml"


@dataclass(frozen=True, slots=True)
class Measurement:
    """Where the baselines come from.

    Attributes:
        location: a store or a CSV file.
        run_id: of the run in a store.
        load: whose baselines are used.
        further_runs: whose rounds are added.
    """

    location: str
    run_id: str | None
    load: str
    further_runs: tuple[str, ...]

    def baselines(self) -> Baselines:
        """Read the baselines; raises as ``baselines_with``."""
        return baselines_with(self.location, self.run_id, self.further_runs, self.load)

    def question(self, profile: Profile, baselines: Baselines, load: str, model: str, confidence: float) -> Ranked:
        """Return what is asked of the baselines."""
        return Ranked(profile, baselines, self.location, self.run_id, load, model, confidence)


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions, and what they were predicted from.

    Attributes:
        profile: at the distance that was asked for.
        baselines: at that distance, for that number of clients.
        predictions: of all configurations.
        document: of the predictions.
        load: of the run under which they may be saved; None if they belong to none.
        preface: what the reader must know first.
    """

    profile: Profile
    baselines: Baselines
    predictions: PredictionSet
    document: Mapping[str, Any]
    load: str | None
    preface: str = ""


def predict(
    predictor: Predictor,
    profile: Profile,
    measurement: Measurement,
    clients: int | None,
    distance: Distance | None,
) -> Predicted:
    """Predict as measured, for another number of clients, or for storage that is farther away."""
    from cephfit.mapper.decisions.contrasts import ranked
    from cephfit.mapper.extrapolation.distant_workload import predicted_at_distance
    from cephfit.operations.ranking import ranked_for_clients

    if clients is not None:
        answer = ranked_for_clients(
            predictor, profile, measurement.location, measurement.run_id, measurement.load, clients
        )
        return Predicted(profile, answer.baselines, answer.predictions, answer.to_json(), answer.load)
    baselines = measurement.baselines()
    if distance is None:
        predictions = ranked(predictor, profile, baselines)
        return Predicted(profile, baselines, predictions, predictions.to_json(), measurement.load)
    distant = predicted_at_distance(predictor, profile, baselines, distance)
    return Predicted(
        distant.profile,
        distant.distant.baselines,
        distant.predictions,
        distant.to_json(),
        load=None,
        preface=distant.sentence(),
    )
