"""Compute baselines from the samples of a run, or of several runs of one cluster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, Cell, LoadedCell
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.run import Run, is_another_cluster
from cephfit.core.values.sample import OWN_LOAD, SUM_OF_CLIENTS, Sample, State
from cephfit.results.statistics.loads import (
    LoadShape,
    by_place,
    loads_by_clients,
    measured_load_of,
    names_of,
    of_load,
    shapes_of,
)
from cephfit.results.store.sample_store import Store


@dataclass(frozen=True, slots=True)
class Measured:
    """The rate of one client in one repeat that counts.

    Attributes:
        configuration: name.
        cell: which of the 20.
        client: name.
        repeat: counts from 0.
        iops: > 0.
        under: size, depth, alignment and way of committing; None if they are unknown, or if the load has a mix or
            a rate limit.
        load: empty for the load of ``Baselines.cells``; else the name of another one.
        n_clients: that ran together, if that is known without counting the rows; 0: as many as there are rows.
    """

    configuration: str
    cell: Cell
    client: str
    repeat: int
    iops: float
    under: LoadedCell | None = None
    load: str = OWN_LOAD
    n_clients: int = 0

    @property
    def is_of_cells(self) -> bool:
        """Whether this is a rate of ``Baselines.cells``: of their load, and of the size of a bin."""
        sized = self.under is None or self.under.nbytes == self.cell.size.benchmark_nbytes
        return self.load == OWN_LOAD and sized


def baselines_of(
    samples: Iterable[Sample],
    *,
    source: str,
    load: str = OWN_LOAD,
    tried: "Mapping[tuple[str, Cell], Tried] | None" = None,
) -> Baselines:
    """Return the baselines of a run under one load.

    A repeat counts if it has an attempt in which every client is ``ok``; the first one is used. The clients of
    an attempt ran together, so their rates are summed. Clients of different attempts are never summed.

    Args:
        samples: of one run, in any order.
        source: origin of the samples, for messages.
        load: name of the load. Rates under different loads are not repeats of each other.
        tried: what ``tried_of`` returns for these samples and this load, if that is known already.

    ``Baselines.loaded`` has the rates of this load and of all others with its number of clients. It is empty if
    samples do not have the shape of the load (those of early versions), or if the load has a mix or a rate limit:
    rates of other loads would not replace it.

    Raises:
        InputError: the run has no load of this name.
    """
    samples = list(samples)
    tried = _default_first(tried_of(samples, load, where=source) if tried is None else tried)
    kept, missing = _comparable(tried, samples, load)
    source += f", load {load}" if load else ""
    return replace(
        group(map(_sum_of_clients, kept), source=source, missing=missing),
        lost=_lost(tried),
        measured_load=measured_load_of({place: there.whole for place, there in tried.items()}),
    )


def baselines_by_clients(
    samples: Iterable[Sample], *, source: str, load: str = OWN_LOAD
) -> dict[int, tuple[str, Baselines]]:
    """Return number of clients to (name of the load, baselines), for loads that differ in nothing else.

    Args:
        samples: of one run, in any order.
        source: origin of the samples, for messages.
        load: one of these loads.

    Raises:
        InputError: the run has no load of this name, or its shape is not recorded.
    """
    samples = list(samples)
    of_load(samples, load, where=source)
    return {
        n: (name, baselines_of(samples, source=source, load=name))
        for n, name in loads_by_clients(samples, load).items()
    }


def measured_of(
    samples: Iterable[Sample], *, load: str = OWN_LOAD, where: str = ""
) -> tuple[list[Measured], dict[tuple[str, Cell], str]]:
    """Return the rates that count, and why a (configuration, cell) that was tried under the load has none.

    The rates are those under the load, followed by those of ``Baselines.loaded`` under other loads. If ``load`` is
    not the measurement's own, the latter is called ``OWN_LOAD_TITLE`` there.

    Raises:
        InputError: there is no load of this name.
    """
    samples = list(samples)
    kept, missing = _comparable(_default_first(tried_of(samples, load, where=where)), samples, load)
    return [_rate(sample, repeat) for repeat in kept for sample in repeat.samples], missing


OWN_LOAD_TITLE = "own"
"""Name of the measurement's own load among rates of several loads, if another load is chosen."""


def _comparable(
    tried: "Mapping[tuple[str, Cell], Tried]", samples: Sequence[Sample], load: str
) -> "tuple[list[_Kept], dict[tuple[str, Cell], str]]":
    """Return the repeats that count, then those of comparable loads; and why a place has none.

    Comparable loads have the same number of clients, no mix and no rate limit. A repeat is the same pass over all
    configurations under every load, so rounds stay comparable. Where two loads do the same in a cell of a
    configuration, the chosen load counts, then the first one.
    """
    shapes = shapes_of(samples)
    chosen = shapes.get(load)
    if chosen is None and load == OWN_LOAD and not any(there.whole for there in tried.values()):
        # Imported runs may have no rate of a bin's size, and so no own load.
        chosen = next((shape for shape in shapes.values() if shape.is_plain), None)
    if chosen is None or not chosen.is_plain:
        return _kept(tried)
    found, missing = _kept(tried, chosen)
    known = _cells_under(tried, chosen)
    for name in names_of(samples):
        shape = shapes.get(name)
        if name == load or shape is None or not shape.is_plain or shape.n_clients != chosen.n_clients:
            continue
        further = {
            (configuration, cell): there
            for (configuration, cell), there in _default_first(tried_of(samples, name)).items()
            if (configuration, shape.loaded(cell)) not in known
        }
        found += _kept(further, shape, name or OWN_LOAD_TITLE)[0]
        known |= _cells_under(further, shape)
    return found, missing


@dataclass(frozen=True, slots=True)
class Tried:
    """The samples of one configuration and cell under a load.

    Attributes:
        samples: all of them.
        whole: the repeats of them that count (``whole_repeats``).
    """

    samples: list[Sample]
    whole: list[list[Sample]]


def tried_of(samples: Iterable[Sample], load: str = OWN_LOAD, *, where: str = "") -> dict[tuple[str, Cell], Tried]:
    """Group the samples of a load by (configuration, cell), in the order of measuring.

    Raises:
        InputError: there is no load of this name.
    """
    by_cell = by_place(of_load(samples, load, where=where))
    return {place: Tried(own, whole_repeats(own)) for place, own in by_cell.items()}


def _default_first(tried: Mapping[tuple[str, Cell], Tried]) -> dict[tuple[str, Cell], Tried]:
    return {place: tried[place] for place in sorted(tried, key=_order(tried))}


@dataclass(frozen=True, slots=True)
class _Kept:
    """A repeat that counts: the samples of its clients, and the load as recorded in their rates (``Measured``)."""

    samples: list[Sample]
    under: LoadedCell | None
    load: str


def _kept(
    tried: Mapping[tuple[str, Cell], Tried], shape: LoadShape | None = None, load: str = OWN_LOAD
) -> tuple[list[_Kept], dict[tuple[str, Cell], str]]:
    """Return the repeats that count, and why a place has none.

    Args:
        tried: of one load.
        shape: of this load, where that is to be recorded in the rates.
        load: its name there.
    """
    kept: list[_Kept] = []
    missing: dict[tuple[str, Cell], str] = {}
    for (configuration, cell), there in tried.items():
        under = None if shape is None else shape.loaded(cell)
        kept += [_Kept(repeat, under, load) for repeat in there.whole]
        if not there.whole:
            missing[configuration, cell] = _why(there.samples) or "no repeat has I/O from every client"
    return kept, missing


def _cells_under(tried: Mapping[tuple[str, Cell], Tried], shape: LoadShape) -> set[tuple[str, LoadedCell]]:
    return {(configuration, shape.loaded(cell)) for (configuration, cell), there in tried.items() if there.whole}


def _lost(tried: Mapping[tuple[str, Cell], Tried]) -> dict[tuple[str, Cell], tuple[str, ...]]:
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


_ALIKE = attrgetter("configuration", "cell", "under", "load")


def group(
    measured: Iterable[Measured], *, source: str, missing: Mapping[tuple[str, Cell], str] | None = None
) -> Baselines:
    """Sum the clients of each repeat; the repeats of each (configuration, cell) in order."""
    cells: dict[tuple[str, Cell], list[Measured]] = {}
    loaded: dict[tuple[str, LoadedCell], list[Measured]] = {}
    for (configuration, cell, under, _), alike in groupby(measured, _ALIKE):
        rows = list(alike)
        if rows[0].is_of_cells:
            cells.setdefault((configuration, cell), []).extend(rows)
        if under is not None:
            loaded.setdefault((configuration, under), []).extend(rows)
    return Baselines(
        {place: _baseline(rows) for place, rows in cells.items()},
        source,
        missing or {},
        loaded={place: _baseline(rows) for place, rows in loaded.items()},
    )


def _baseline(rows: Sequence[Measured]) -> Baseline:
    """Return the baseline of the rows of one configuration and cell under one load; at least one row."""
    repeats: dict[int, dict[str, float]] = {}
    for row in rows:
        repeats.setdefault(row.repeat, {})[row.client] = row.iops
    return Baseline(
        rows[0].configuration,
        rows[0].cell,
        tuple(sum(repeats[repeat].values()) for repeat in sorted(repeats)),
        n_clients=rows[0].n_clients or max(len(clients) for clients in repeats.values()),
        rounds=tuple(sorted(repeats)),
    )


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
    for number, alike in groupby(samples, _REPEAT):  # the samples of all clients follow each other
        repeats.setdefault(number, []).extend(alike)
    clients = {client for repeat in repeats.values() for client in map(_CLIENT, repeat)}
    return [whole for repeat in sorted(repeats) if (whole := _first_whole(repeats[repeat], clients))]


_REPEAT, _ATTEMPT, _CLIENT = map(attrgetter, ("key.repeat", "key.attempt", "key.client"))


def _first_whole(samples: list[Sample], clients: set[str]) -> list[Sample]:
    for attempt in sorted(set(map(_ATTEMPT, samples))):
        good = [
            s
            for s in samples
            if s.key.attempt == attempt and s.state is State.OK and s.metrics is not None and s.metrics.iops > 0
        ]
        if set(map(_CLIENT, good)) == clients:
            return sorted(good, key=_CLIENT)
    return []


def _rate(sample: Sample, repeat: _Kept) -> Measured:
    k, n_clients = sample.key, _n_clients(sample)
    return Measured(
        k.configuration, k.cell, k.client, k.repeat, _iops(sample), repeat.under, repeat.load, n_clients
    )


def _sum_of_clients(repeat: _Kept) -> Measured:
    """Return the rate of all clients together as that of one; their number is in ``n_clients``."""
    k, iops = repeat.samples[0].key, sum(map(_iops, repeat.samples))
    n_clients = _n_clients(repeat.samples[0]) or len(repeat.samples)
    return Measured(k.configuration, k.cell, "", k.repeat, iops, repeat.under, repeat.load, n_clients)


def _n_clients(sample: Sample) -> int:
    return int(sample.evidence.get(SUM_OF_CLIENTS, 0))


def _iops(sample: Sample) -> float:
    assert sample.metrics is not None, "a repeat counts only with the metrics of all its clients"
    return sample.metrics.iops


def _why(samples: list[Sample]) -> str:
    reasons = dict.fromkeys(f"{sample.state}: {sample.reason}" for sample in samples if sample.reason)
    return "; ".join(reasons)


def joined_baselines(store: Store, run: Run, others: Sequence[Run], load: str = OWN_LOAD) -> Baselines:
    """Return the baselines of a run, with the rounds of further runs after its own.

    Runs of one cluster at different times are different rounds: only configurations of one run are compared with
    each other within its rounds. Loads of the same shape are one load, whatever their names.

    Args:
        store: of all runs.
        run: the first one.
        others: in the order of their rounds.
        load: of the first run.

    Raises:
        InputError: another run is of another cluster, or is given twice.
    """
    samples = store.samples(run.run_id)
    known = shapes_of(samples)
    seen = {run.run_id}
    for other in others:
        if other.run_id in seen:
            raise InputError(f"run {other.run_id} is given twice", where=store.name, remedy="name it once")
        seen.add(other.run_id)
        _refuse_another_cluster(run, other, store.name)
        first = 1 + max((s.key.repeat for s in samples), default=-1)
        added = store.samples(other.run_id)
        names = _load_names(known, shapes_of(added), other.run_id)
        samples += [
            replace(s, key=replace(s.key, repeat=first + s.key.repeat, load=names.get(s.key.load, s.key.load)))
            for s in added
        ]
    source = f"{store.name}, runs {', '.join([run.run_id, *(other.run_id for other in others)])}"
    return baselines_of(samples, source=source, load=load)


def _refuse_another_cluster(run: Run, other: Run, where: str) -> None:
    """Refuse runs of different clusters.

    Raises:
        InputError: the rates of the two runs are not of the same cluster.
    """
    if run.is_simulated and other.is_simulated:
        return  # the cluster is always the same; only its noise and faults are options
    if other.target != run.target or is_another_cluster(run.facts, other.facts):
        raise InputError(
            f"run {other.run_id} measured {other.target}, and run {run.run_id} measured {run.target}, or the "
            "cluster was created again since",
            where=where,
            remedy="join only runs of the same cluster; `cephfit compare` compares different ones",
        )


def _load_names(known: Mapping[str, LoadShape], added: Mapping[str, LoadShape], run_id: str) -> Mapping[str, str]:
    """Return the name of each load of a further run in the first one; a new name for a new load."""
    by_shape = {_shape(shape): name for name, shape in known.items()}
    return {name: by_shape.get(_shape(shape), f"{name or 'own'} of {run_id}") for name, shape in added.items()}


def _shape(shape: LoadShape) -> tuple[Any, ...]:
    return (shape.iodepth, shape.n_clients, shape.rest, shape.align_nbytes, shape.sync)
