"""How far a run has come: what of its plan is measured, given up, or left."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cephfit.cells import Cell
from cephfit.sample import OWN_LOAD, Sample, State
from cephfit.sweep.model import Sweep

TOOK_EFFECT = "configuration_took_effect"
"""Key of a sample's evidence: False where its configuration was not brought about and nothing was measured."""


@dataclass(frozen=True, slots=True)
class ConfigurationStanding:
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


class Standing:
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

    def of_configuration(self, configuration: str) -> ConfigurationStanding:
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
        return ConfigurationStanding(
            configuration=configuration,
            planned=n_planned,
            ok=ends.count(State.OK),
            failed=ends.count(State.FAILED),
            invalid=ends.count(State.INVALID),
            skipped=ends.count(State.SKIPPED),
            left=sum(clients[place[2]] for place in places if not self.is_settled(configuration, *place)),
            saved=n_planned - n_needed,
        )

    def all(self) -> list[ConfigurationStanding]:
        """Every configuration of the sweep, in its order."""
        return [self.of_configuration(c.name) for c in self._sweep.configurations]


def _run_state(clients: Iterable[State]) -> State:
    """The state of a fio run from those of its clients: the worst of them."""
    states = set(clients)
    return next(s for s in (State.SKIPPED, State.FAILED, State.INVALID, State.OK) if s in states)
