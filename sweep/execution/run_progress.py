"""The progress of a run: what is measured, given up or left, and how long steps take on a target."""

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
    """Return how long steps take: from the target, else from earlier runs in ``store``, else assumed values."""
    if isinstance(target, EstimatesStepTimes):
        return target.step_times()
    return (None if store is None else times_of(store, target.name)) or ASSUMED_TIMES


def times_of(store: Store, target: str) -> StepTimes | None:
    """Return medians over the newest run on ``target`` that has samples; None where there is no such run.

    The overhead of a fio run is the median time between the starts of two consecutive fio runs under one
    configuration, less ramp and run time. Where caches were warm, overhead above the assumed one counts as the
    time that warming took.
    """
    for run in store.runs():
        if run.target != target:
            continue
        measurement = parse_sweep(run.sweep_text, file=run.run_id, stored=True).measurement
        starts: dict[int, tuple[str, int]] = {}
        for sample in store.every_sample(run.run_id):
            if sample.state is State.OK:
                starts[sample.started_ns] = (sample.key.configuration, sample.key.repeat)
        order = sorted(starts)
        gaps = [(b - a) / NS_PER_S for a, b in pairwise(order) if starts[a] == starts[b]]
        # The first application of a configuration also fills its volumes, so it takes longer than later ones.
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
    """Return the rate of reading whole volumes, in bytes per second; the assumed one where none were read."""
    if not nbytes:
        return ASSUMED_TIMES.warm_nbytes_per_s
    return nbytes / seconds if seconds else float("inf")


TOOK_EFFECT = "configuration_took_effect"
"""Key of a sample's evidence: False where its configuration did not take effect and nothing was measured."""


@dataclass(frozen=True, slots=True)
class ConfigurationProgress:
    """The progress of one configuration, counted in samples; a fio run gives one sample per client.

    Attributes:
        configuration: name.
        planned: cells times repeats times clients, over all loads.
        ok: samples in this state; this and the next three count every attempt.
        failed: samples without a result.
        invalid: samples with an untrustworthy result.
        skipped: samples that were not attempted.
        left: samples that are still to be measured.
        saved: planned samples that are no longer needed (``stopping`` in the sweep file).
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
    """Counts a run's samples. It knows only stored samples, so an interrupted fio run does not count."""

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
            sweep: with all configurations that are known so far.
            samples: of the run.
            stops: round after which the measurement of a cell of a configuration ended.
            rounds: rounds of each configuration; one per repeat for those not named.
        """
        self._sweep = sweep
        self._stops = stops or {}
        self._rounds = rounds or {}
        self._attempts: dict[tuple[str, Cell, int, str], dict[int, dict[str, State]]] = {}
        self._given_up: set[tuple[str, Cell, int, str]] = set()
        self.add(samples)

    def add(self, samples: Iterable[Sample]) -> None:
        """Count samples that are in the store."""
        for sample in samples:
            key = sample.key
            place = (key.configuration, key.cell, key.repeat, key.load)
            self._attempts.setdefault(place, {}).setdefault(key.attempt, {})[key.client] = sample.state
            if sample.evidence.get(TOOK_EFFECT) is False:
                self._given_up.add(place)

    def has_begun(self, repeat: int) -> bool:
        """Return whether a round has a sample of a configuration that was applied."""
        return any(place[2] == repeat and place not in self._given_up for place in self._attempts)

    def next_attempt(self, configuration: str, cell: Cell, repeat: int, load: str = OWN_LOAD) -> int:
        """Return the number of the next attempt."""
        attempts = self._attempts.get((configuration, cell, repeat, load), {})
        return max(attempts) + 1 if attempts else 0

    def is_settled(self, configuration: str, cell: Cell, repeat: int, load: str = OWN_LOAD) -> bool:
        """Return whether a cell is complete: measured, skipped, without attempts left, or not applicable."""
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
        """Return the progress of every configuration, in the sweep's order."""
        return [self.of_configuration(c.name) for c in self._sweep.configurations]


def _run_state(clients: Iterable[State]) -> State:
    """Return the state of a fio run: the worst of its clients' states."""
    states = set(clients)
    return next(s for s in (State.SKIPPED, State.FAILED, State.INVALID, State.OK) if s in states)
