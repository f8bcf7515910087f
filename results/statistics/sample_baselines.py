"""Compute baselines from the samples of a run, or of several runs of one cluster."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.statistics.sample_columns import Rows, SampleColumns
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, Cell, LoadedCell
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.sample import OWN_LOAD, SUM_OF_CLIENTS, Run, Sample, is_another_cluster
from cephfit.results.statistics.loads import (
    LoadShape,
    Place,
    Repeats,
    Tried,
    loads_by_clients,
    measured_load_of,
    names_of,
    rows_of_load,
    shapes_of,
    tried_at_places,
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
        """Whether this is a rate of ``Baselines.cells``."""
        return _is_of_cells(self.cell, self.under, self.load)


def _is_of_cells(cell: Cell, under: LoadedCell | None, load: str) -> bool:
    """Return whether a rate is one of ``Baselines.cells``: of their load, and of the size of a bin."""
    return load == OWN_LOAD and (under is None or under.nbytes == cell.size.benchmark_nbytes)


def baselines_of(
    samples: Iterable[Sample],
    *,
    source: str,
    load: str = OWN_LOAD,
    tried: Mapping[Place, Tried] | None = None,
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
    samples = SampleColumns.of(samples)
    tried = _default_first(tried_of(samples, load, where=source) if tried is None else tried)
    kept, missing = _comparable(tried, samples, load)
    source += f", load {load}" if load else ""
    return replace(
        _sums_of_clients(kept, source=source, missing=missing),
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
    samples = SampleColumns.of(samples)
    rows_of_load(samples, load, where=source)
    return {
        n: (name, baselines_of(samples, source=source, load=name))
        for n, name in loads_by_clients(samples, load).items()
    }


def measured_of(
    samples: Iterable[Sample], *, load: str = OWN_LOAD, where: str = ""
) -> tuple[list[Measured], dict[Place, str]]:
    """Return the rates that count, and why a (configuration, cell) that was tried under the load has none.

    The rates are those under the load, followed by those of ``Baselines.loaded`` under other loads. If ``load`` is
    not the measurement's own, the latter is called ``OWN_LOAD_TITLE`` there.

    Raises:
        InputError: there is no load of this name.
    """
    samples = SampleColumns.of(samples)
    kept, missing = _comparable(_default_first(tried_of(samples, load, where=where)), samples, load)
    return [rate for repeats in kept for rate in _rates(repeats)], missing


OWN_LOAD_TITLE = "own"
"""Name of the measurement's own load among rates of several loads, if another load is chosen."""


def _comparable(
    tried: Mapping[Place, Tried], samples: SampleColumns, load: str
) -> "tuple[list[_Kept], dict[Place, str]]":
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


def tried_of(samples: Iterable[Sample], load: str = OWN_LOAD, *, where: str = "") -> dict[Place, Tried]:
    """Group the samples of a load by (configuration, cell), in the order of measuring.

    Raises:
        InputError: there is no load of this name.
    """
    columns = SampleColumns.of(samples)
    return tried_at_places(columns, rows_of_load(columns, load, where=where))


def _default_first(tried: Mapping[Place, Tried]) -> dict[Place, Tried]:
    return {place: tried[place] for place in sorted(tried, key=_order(tried))}


@dataclass(frozen=True, slots=True)
class _Kept:
    """The repeats of a place that count, and the load as recorded in their rates (``Measured``)."""

    place: Place
    repeats: Repeats
    under: LoadedCell | None
    load: str


def _kept(
    tried: Mapping[Place, Tried], shape: LoadShape | None = None, load: str = OWN_LOAD
) -> tuple[list[_Kept], dict[Place, str]]:
    """Return the repeats that count, and why a place has none.

    Args:
        tried: of one load.
        shape: of this load, where that is to be recorded in the rates.
        load: its name there.
    """
    kept: list[_Kept] = []
    missing: dict[Place, str] = {}
    for (configuration, cell), there in tried.items():
        under = None if shape is None else shape.loaded(cell)
        if there.whole:
            kept.append(_Kept((configuration, cell), there.whole, under, load))
        else:
            missing[configuration, cell] = there.reasons() or "no repeat has I/O from every client"
    return kept, missing


def _cells_under(tried: Mapping[Place, Tried], shape: LoadShape) -> set[tuple[str, LoadedCell]]:
    return {(configuration, shape.loaded(cell)) for (configuration, cell), there in tried.items() if there.whole}


def _lost(tried: Mapping[Place, Tried]) -> dict[Place, tuple[str, ...]]:
    """Return why repeats gave no figure, by (configuration, cell), in the order of repeats."""
    lost = {
        place: tuple(there.reasons(repeat) or "a client completed no I/O" for repeat in there.lost())
        for place, there in tried.items()
    }
    return {place: reasons for place, reasons in lost.items() if reasons}


_ALIKE = attrgetter("configuration", "cell", "under", "load")


def group(measured: Iterable[Measured], *, source: str, missing: Mapping[Place, str] | None = None) -> Baselines:
    """Sum the clients of each repeat; the repeats of each (configuration, cell) in order."""
    cells: dict[Place, list[Measured]] = {}
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


def _order(places: Iterable[Place]) -> "_Order":
    return _Order(dict.fromkeys(configuration for configuration, _ in places))


class _Order:
    """The default first, then configurations as they first appear; cells in the vocabulary's order."""

    def __init__(self, configurations: Iterable[str]) -> None:
        names = dict.fromkeys([DEFAULT_CONFIGURATION, *configurations])
        self._configurations = {name: i for i, name in enumerate(names)}
        self._cells = {cell: i for i, cell in enumerate(CELLS)}

    def __call__(self, place: Place) -> tuple[int, int]:
        return self._configurations[place[0]], self._cells[place[1]]


def _rates(kept: _Kept) -> Iterator[Measured]:
    """Yield the rate of each client in each repeat."""
    samples, rows = kept.repeats.samples, kept.repeats.rows.ravel()
    together = _clients_together(samples, rows)
    numbers, clients, rates = (column[rows].tolist() for column in (samples.repeat, samples.client, samples.iops))
    for row, repeat, client, iops in zip(rows.tolist(), numbers, clients, rates, strict=True):
        name, n = samples.clients[client], together.get(row, 0)
        yield Measured(*kept.place, name, repeat, iops, kept.under, kept.load, n)


def _sums_of_clients(kept: Iterable[_Kept], *, source: str, missing: Mapping[Place, str]) -> Baselines:
    """Return the baselines of repeats that count: the sums of the rates of their clients."""
    cells: dict[Place, Baseline] = {}
    loaded: dict[tuple[str, LoadedCell], Baseline] = {}
    for of_place in kept:
        found = _sum_of_clients(of_place)
        name, cell = of_place.place
        under = of_place.under
        if _is_of_cells(cell, under, of_place.load):
            cells[name, cell] = found
        if under is not None:
            loaded.setdefault((name, under), found)
    return Baselines(cells, source, missing, loaded=loaded)


def _sum_of_clients(kept: _Kept) -> Baseline:
    repeats = kept.repeats
    first = repeats.rows[:1, 0]
    n_clients = next(iter(_clients_together(repeats.samples, first).values()), 0) or repeats.n_clients
    rates = tuple(map(sum, repeats.of_clients(repeats.samples.iops)))
    return Baseline(*kept.place, rates, n_clients=n_clients, rounds=tuple(repeats.numbers))


def _clients_together(samples: SampleColumns, rows: Rows) -> dict[int, int]:
    """Return the number of clients by row, for samples that are the sum of several."""
    found = samples.evidence_with(SUM_OF_CLIENTS, rows=rows)
    return {row: int(evidence[SUM_OF_CLIENTS]) for row, evidence in found}


def joined_baselines(store: Store, run: Run, others: Sequence[Run], load: str = OWN_LOAD) -> Baselines:
    """Return the baselines of a run, with the rounds of further runs after its own.

    Runs of one cluster at different times are different rounds: only configurations of one run are compared with
    each other within its rounds. Loads of the same shape are one load, whatever their names, and so are clients,
    which imported runs may call otherwise.

    Args:
        store: of all runs.
        run: the first one.
        others: in the order of their rounds.
        load: of the first run.

    Raises:
        InputError: another run is of another cluster, or is given twice.
    """
    samples = list(store.samples(run.run_id))
    known, own_clients = shapes_of(samples), _clients_of(samples)
    seen = {run.run_id}
    for other in others:
        if other.run_id in seen:
            raise InputError(f"run {other.run_id} is given twice", where=store.name, remedy="name it once")
        seen.add(other.run_id)
        _refuse_another_cluster(run, other, store.name)
        first = 1 + max((s.key.repeat for s in samples), default=-1)
        added = store.samples(other.run_id)
        names = _load_names(known, shapes_of(added), other.run_id)
        loads = {load: names.get(load, load) for load in {s.key.load for s in added}}
        clients = _client_names(own_clients, _clients_of(added), loads)
        samples += [
            replace(
                s,
                key=replace(
                    s.key,
                    repeat=first + s.key.repeat,
                    load=loads[s.key.load],
                    client=clients.get((s.key.load, s.key.client), s.key.client),
                ),
            )
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


def _clients_of(samples: Iterable[Sample]) -> dict[str, list[str]]:
    """Return the names of the clients under each load, sorted."""
    found: dict[str, set[str]] = {}
    for sample in samples:
        found.setdefault(sample.key.load, set()).add(sample.key.client)
    return {load: sorted(names) for load, names in found.items()}


def _client_names(
    known: Mapping[str, Sequence[str]], added: Mapping[str, Sequence[str]], loads: Mapping[str, str]
) -> Mapping[tuple[str, str], str]:
    """Return the name in the first run of each (load, client) of a further run, where both have as many clients.

    Args:
        known, added: clients of the loads of both runs, sorted.
        loads: the name in the first run of each load of the further run.
    """
    alike = {load: known.get(loads[load], ()) for load in added}
    return {
        (load, name): its_name
        for load, names in added.items()
        if len(alike[load]) == len(names)
        for name, its_name in zip(names, alike[load], strict=True)
    }


def _shape(shape: LoadShape) -> tuple[Any, ...]:
    return (shape.iodepth, shape.n_clients, shape.rest, shape.align_nbytes, shape.sync)
