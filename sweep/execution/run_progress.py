"""How far a run has come, and how long its steps took on the target before.

How long the steps of a sweep took on a target before, from the store.

How far a run has come: what of its plan is measured, given up, or left.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from cephfit.core.protocols import Target
from cephfit.core.units import NS_PER_S
from cephfit.core.values.cells import Cell
from cephfit.core.values.measurement import ASSUMED_TIMES, StepTimes
from cephfit.core.values.sample import OWN_LOAD, Sample, State
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.sweep_plan import Sweep, warmed_nbytes
from cephfit.targets.abilities import EstimatesStepTimes


def times_on(target: Target, store: Store | None) -> StepTimes:
    """What steps take on a target: by itself, by earlier runs in ``store``, or as assumed of any cluster."""
    if isinstance(target, EstimatesStepTimes):
        return target.step_times()
    return (None if store is None else times_of(store, target.name)) or ASSUMED_TIMES


def times_of(store: Store, target: str) -> StepTimes | None:
    """Medians over the newest run on ``target`` that has samples; None where there is none.

    The time around a fio run is the median distance between the starts of two consecutive fio runs under one
    configuration, less ramp and run time. Where caches were warm, what is more than usual was the reading before.
    """
    for run in store.runs():
        if run.target != target:
            continue
        measurement = parse_sweep(run.sweep_text, file=run.run_id, stored=True).measurement
        starts: dict[int, tuple[str, int]] = {}
        for sample in store.samples(run.run_id):
            if sample.state is State.OK:
                starts[sample.started_ns] = (sample.key.configuration, sample.key.repeat)
        order = sorted(starts)
        gaps = [(b - a) / NS_PER_S for a, b in pairwise(order) if starts[a] == starts[b]]
        # The first application of a configuration fills its volumes: not what the others take.
        applied = [a.seconds for repeat, a in store.applied(run.run_id) if repeat > 0] or [
            a.seconds for _, a in store.applied(run.run_id)
        ]
        if gaps and applied:
            asked = measurement.ramp_seconds + measurement.run_seconds
            around = max(0.0, median(gaps) - asked)
            read = warmed_nbytes(measurement)
            reading = max(0.0, around - ASSUMED_TIMES.cell_seconds) if read else 0.0
            return StepTimes(
                apply_seconds=median(applied),
                cell_seconds=around - reading,
                fill_nbytes_per_s=ASSUMED_TIMES.fill_nbytes_per_s,
                source=f"as run {run.run_id} took on {target}",
                warm_nbytes_per_s=_rate(read, reading),
            )
    return None


def _rate(nbytes: int, seconds: float) -> float:
    """Bytes per second of reading volumes through; as assumed where none were read."""
    if not nbytes:
        return ASSUMED_TIMES.warm_nbytes_per_s
    return nbytes / seconds if seconds else float("inf")


TOOK_EFFECT = "configuration_took_effect"
"""Key of a sample's evidence: False where its configuration was not brought about and nothing was measured."""


@dataclass(frozen=True, slots=True)
class ConfigurationProgress:
    """How far one configuration is. All figures count samples, of which a fio run gives one for each client.

    Attributes:
        configuration: name.
        planned: cells times repeats times clients, of every load.
        ok: stored in this state, as are the next three; every attempt counts.
        failed: without a result.
        invalid: whose result must not be trusted.
        skipped: never tried, on purpose.
        left: to be measured still.
        saved: of the planned ones, those that are not needed any more (``stopping`` in the sweep file).
    """

    configuration: str
    planned: int
    ok: int
    failed: int
    invalid: int
    skipped: int
    left: int
    saved: int = 0

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class RunProgress:
    """Keeps count of a run's samples. What is in the store is all it knows; half a run leaves no trace in it."""

    def __init__(
        self,
        sweep: Sweep,
        samples: Iterable[Sample] = (),
        *,
        stops: Mapping[tuple[str, Cell], int] | None = None,
        rounds: Mapping[str, range] | None = None,
    ) -> None:
        """Begin to count.

        Args:
            sweep: with all configurations that are known by now.
            samples: of the run.
            stops: rounds after which a cell of a configuration is measured no more.
            rounds: in which configurations are measured; as many as there are repeats for those not named.
        """
        self._sweep = sweep
        self._stops = stops or {}
        self._rounds = rounds or {}
        self._attempts: dict[tuple[str, Cell, int, str], dict[int, dict[str, State]]] = {}
        self._given_up: set[tuple[str, Cell, int, str]] = set()
        self.add(samples)

    def add(self, samples: Iterable[Sample]) -> None:
        """Take note of samples that are in the store."""
        for sample in samples:
            key = sample.key
            place = (key.configuration, key.cell, key.repeat, key.load)
            self._attempts.setdefault(place, {}).setdefault(key.attempt, {})[key.client] = sample.state
            if sample.evidence.get(TOOK_EFFECT) is False:
                self._given_up.add(place)

    def next_attempt(self, configuration: str, cell: Cell, repeat: int, load: str = OWN_LOAD) -> int:
        """Number of the attempt that comes next."""
        attempts = self._attempts.get((configuration, cell, repeat, load), {})
        return max(attempts) + 1 if attempts else 0

    def is_settled(self, configuration: str, cell: Cell, repeat: int, load: str = OWN_LOAD) -> bool:
        """Whether nothing is left to do: measured, skipped, tried as often as the sweep says, or not to be had."""
        attempts = self._attempts.get((configuration, cell, repeat, load), {})
        ends = {_run_state(states.values()) for states in attempts.values()}
        if (configuration, cell, repeat, load) in self._given_up:
            return True
        return bool(ends & {State.OK, State.SKIPPED}) or len(attempts) >= self._sweep.measurement.max_attempts

    def of_configuration(self, configuration: str) -> ConfigurationProgress:
        measurement = self._sweep.measurement
        rounds = self._rounds.get(configuration, range(measurement.repeats))
        planned = [
            (cell, repeat, load)
            for repeat in rounds
            for load in measurement.load_names
            for cell in measurement.under(load).cells
        ]
        places = [p for p in planned if p[1] < self._stops.get((configuration, p[0]), rounds.stop)]
        clients = {load: measurement.under(load).n_clients for load in measurement.load_names}
        ends = [
            state
            for place in places
            for states in self._attempts.get((configuration, *place), {}).values()
            for state in states.values()
        ]
        n_planned, n_needed = (sum(clients[load] for _, _, load in some) for some in (planned, places))
        return ConfigurationProgress(
            configuration=configuration,
            planned=n_planned,
            ok=ends.count(State.OK),
            failed=ends.count(State.FAILED),
            invalid=ends.count(State.INVALID),
            skipped=ends.count(State.SKIPPED),
            left=sum(clients[place[2]] for place in places if not self.is_settled(configuration, *place)),
            saved=n_planned - n_needed,
        )

    def all(self) -> list[ConfigurationProgress]:
        """Every configuration of the sweep, in its order."""
        return [self.of_configuration(c.name) for c in self._sweep.configurations]


def _run_state(clients: Iterable[State]) -> State:
    """The state of a fio run from those of its clients: the worst of them."""
    states = set(clients)
    return next(s for s in (State.SKIPPED, State.FAILED, State.INVALID, State.OK) if s in states)
