"""Compute baselines from samples."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, Cell
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.sample import OWN_LOAD, Sample, State
from cephfit.results.statistics.loads import by_place, measured_load_of, of_load


@dataclass(frozen=True, slots=True)
class Measured:
    """The rate of one client in one repeat that counts.

    Attributes:
        configuration: name.
        cell: which of the 20.
        client: name.
        repeat: counts from 0.
        iops: > 0.
    """

    configuration: str
    cell: Cell
    client: str
    repeat: int
    iops: float


def baselines_of(samples: Iterable[Sample], *, source: str, load: str = OWN_LOAD) -> Baselines:
    """Return the baselines of a run under one load.

    A repeat counts if it has an attempt in which every client is ``ok``; the first one is used. The clients of
    an attempt ran together, so their rates are summed. Clients of different attempts are never summed.

    Args:
        samples: of one run, in any order.
        source: origin of the samples, for messages.
        load: name of the load. Rates under different loads are not repeats of each other.

    Raises:
        InputError: the run has no load of this name.
    """
    tried = _tried(samples, load, source)
    measured, missing = _measured(tried)
    source += f", load {load}" if load else ""
    return replace(
        group(measured, source=source, missing=missing),
        lost=_lost(tried),
        measured_load=measured_load_of({place: there.whole for place, there in tried.items()}),
    )


def measured_of(
    samples: Iterable[Sample], *, load: str = OWN_LOAD, where: str = ""
) -> tuple[list[Measured], dict[tuple[str, Cell], str]]:
    """Return the rates under one load that count, and why a (configuration, cell) that was tried has none.

    Raises:
        InputError: there is no load of this name.
    """
    return _measured(_tried(samples, load, where))


@dataclass(frozen=True, slots=True)
class _Tried:
    """The samples of one configuration and cell, and the repeats of them that count (``whole_repeats``)."""

    samples: list[Sample]
    whole: list[list[Sample]]


def _tried(samples: Iterable[Sample], load: str, where: str) -> dict[tuple[str, Cell], _Tried]:
    """Group by (configuration, cell), the default first."""
    by_cell = by_place(of_load(samples, load, where=where))
    return {
        place: _Tried(by_cell[place], whole_repeats(by_cell[place]))
        for place in sorted(by_cell, key=_order(by_cell))
    }


def _measured(
    tried: Mapping[tuple[str, Cell], _Tried],
) -> tuple[list[Measured], dict[tuple[str, Cell], str]]:
    measured: list[Measured] = []
    missing: dict[tuple[str, Cell], str] = {}
    for place, there in tried.items():
        measured += [_rate(sample) for repeat in there.whole for sample in repeat]
        if not there.whole:
            missing[place] = _why(there.samples) or "no repeat has I/O from every client"
    return measured, missing


def _lost(tried: Mapping[tuple[str, Cell], _Tried]) -> dict[tuple[str, Cell], tuple[str, ...]]:
    """Return why repeats gave no figure, by (configuration, cell), in the order of repeats."""
    lost: dict[tuple[str, Cell], tuple[str, ...]] = {}
    for place, there in tried.items():
        whole = {repeat[0].key.repeat for repeat in there.whole}
        if reasons := tuple(
            _why([s for s in there.samples if s.key.repeat == repeat]) or "a client completed no I/O"
            for repeat in sorted({s.key.repeat for s in there.samples} - whole)
        ):
            lost[place] = reasons
    return lost


def group(
    measured: Iterable[Measured], *, source: str, missing: Mapping[tuple[str, Cell], str] | None = None
) -> Baselines:
    """Sum the clients of each repeat; the repeats of each (configuration, cell) in order."""
    sums: dict[tuple[str, Cell], dict[int, dict[str, float]]] = {}
    for row in measured:
        repeats = sums.setdefault((row.configuration, row.cell), {})
        repeats.setdefault(row.repeat, {})[row.client] = row.iops
    cells = {
        (configuration, cell): Baseline(
            configuration,
            cell,
            tuple(sum(repeats[repeat].values()) for repeat in sorted(repeats)),
            n_clients=max(len(clients) for clients in repeats.values()),
            rounds=tuple(sorted(repeats)),
        )
        for (configuration, cell), repeats in sums.items()
    }
    return Baselines(cells, source, missing or {})


def _order(places: Iterable[tuple[str, Cell]]) -> "_Order":
    return _Order(dict.fromkeys(configuration for configuration, _ in places))


class _Order:
    """The default first, then configurations as they first appear; cells in the vocabulary's order."""

    def __init__(self, configurations: Iterable[str]) -> None:
        names = dict.fromkeys([DEFAULT_CONFIGURATION, *configurations])
        self._configurations = {name: i for i, name in enumerate(names)}
        self._cells = {cell: i for i, cell in enumerate(CELLS)}

    def __call__(self, place: tuple[str, Cell]) -> tuple[int, int]:
        return self._configurations[place[0]], self._cells[place[1]]


def whole_repeats(samples: Iterable[Sample]) -> list[list[Sample]]:
    """Return the repeats that count, each as the samples of its clients in the order of their names.

    Args:
        samples: of one configuration, cell and load.
    """
    repeats: dict[int, list[Sample]] = {}
    for sample in samples:
        repeats.setdefault(sample.key.repeat, []).append(sample)
    clients = {sample.key.client for repeat in repeats.values() for sample in repeat}
    return [whole for repeat in sorted(repeats) if (whole := _first_whole(repeats[repeat], clients))]


def _first_whole(samples: list[Sample], clients: set[str]) -> list[Sample]:
    for attempt in sorted({sample.key.attempt for sample in samples}):
        good = [
            s
            for s in samples
            if s.key.attempt == attempt and s.state is State.OK and s.metrics is not None and s.metrics.iops > 0
        ]
        if {s.key.client for s in good} == clients:
            return sorted(good, key=lambda s: s.key.client)
    return []


def _rate(sample: Sample) -> Measured:
    assert sample.metrics is not None, "a repeat counts only with the metrics of all its clients"
    key = sample.key
    return Measured(key.configuration, key.cell, key.client, key.repeat, sample.metrics.iops)


def _why(samples: list[Sample]) -> str:
    reasons = dict.fromkeys(f"{sample.state}: {sample.reason}" for sample in samples if sample.reason)
    return "; ".join(reasons)
