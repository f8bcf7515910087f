"""The samples of a run as columns, for statistics of a run with a million samples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from cephfit.core.statistics.round_effects import Floats
from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State, from_json, windows_nbytes_of

Ints = NDArray[np.int64]
Objects = NDArray[np.object_]
Rows = NDArray[np.intp]

STATES = tuple(State)
OK = STATES.index(State.OK)
"""Code of ``State.OK`` in ``SampleColumns.state``."""
_AT_ONCE = 4096
"""Samples or documents that are made together, so that few of them are in memory at a time."""


class Codes(dict[Any, int]):
    """Numbers of values, from 0 in the order of their first look-up."""

    def __missing__(self, value: Any) -> int:
        code = self[value] = len(self)
        return code

    def of(self, values: Sequence[Any]) -> Ints:
        """Return the number of each value."""
        return np.fromiter(map(self.__getitem__, values), np.int64, len(values))


P75, P99 = 75.0, 99.0


@dataclass(frozen=True, slots=True)
class Tails:
    """Percentiles of latency of N samples.

    Attributes:
        percentiles: that any sample has, ascending; P of them.
        ns: shape (N, P); NaN where a sample lacks one.
        integral: which samples have whole numbers of ns, shape (N,).
    """

    percentiles: tuple[float, ...]
    ns: Floats
    integral: NDArray[np.bool_]

    @classmethod
    def of(cls, documents: Objects) -> Tails:
        """Return what the documents have: JSON texts, or values of ``Metrics.latency_percentiles_ns``, or None."""
        rows: dict[tuple[Any, ...], list[Rows]] = {}
        values: dict[tuple[Any, ...], list[Floats]] = {}
        integral = np.zeros(len(documents), dtype=np.bool_)
        for first in range(0, len(documents), _AT_ONCE):
            batch = documents[first : first + _AT_ONCE]
            known = np.flatnonzero(batch.astype(np.bool_))
            found = list(parsed(batch[known]))
            titles = list(map(tuple, found))
            different = set(titles)
            for same in different:  # all samples of an engine have the same percentiles
                at = np.array([i for i, title in enumerate(titles) if len(different) == 1 or title == same])
                own = found if len(at) == len(found) else [found[i] for i in at]
                flat = list(chain.from_iterable(map(dict.values, own)))
                rows.setdefault(same, []).append(first + known[at])
                values.setdefault(same, []).append(np.array(flat, np.float64).reshape(len(own), len(same)))
                if same:
                    integral[first + known[at]] = [type(ns) is int for ns in flat[:: len(same)]]
        percentiles = sorted({float(p) for same in rows for p in same})
        ns = np.full((len(documents), len(percentiles)), np.nan)
        for same, parts in rows.items():
            columns = np.array([percentiles.index(float(p)) for p in same], np.intp)
            ns[np.ix_(np.concatenate(parts), columns)] = np.concatenate(values[same])
        return cls(tuple(percentiles), ns, integral)

    def take(self, rows: Rows | slice) -> Tails:
        return Tails(self.percentiles, self.ns[rows], self.integral[rows])

    def documents(self) -> Iterator[dict[float, float]]:
        """Yield the percentiles of each sample."""
        for own, is_integral in zip(self.ns.tolist(), self.integral.tolist(), strict=True):
            known = ((p, ns) for p, ns in zip(self.percentiles, own, strict=True) if ns == ns)
            yield {p: int(ns) if ns == int(ns) else ns for p, ns in known} if is_integral else dict(known)


@dataclass(frozen=True, slots=True)
class EvidenceFacts:
    """What reports need of the evidence of N samples, read in one pass.

    Attributes:
        keys: that any sample's evidence has.
        caches: conditions of caches as texts; None for evidence without one.
        cache: number of the sample's condition in ``caches``, shape (N,).
        window_nbytes: as ``window_nbytes_of``, shape (N,); NaN without an independent count.
    """

    keys: frozenset[str]
    caches: tuple[str | None, ...]
    cache: Ints
    window_nbytes: Floats

    @classmethod
    def of(cls, documents: Objects) -> EvidenceFacts:
        """Return them; ``documents`` are JSON texts or values."""
        keys: set[str] = set()
        caches = Codes()
        cache = np.zeros(len(documents), np.int64)
        window_nbytes = np.full(len(documents), np.nan)
        for first in range(0, len(documents), _AT_ONCE):
            found = list(parsed(documents[first : first + _AT_ONCE]))
            batch = slice(first, first + len(found))
            keys.update(*found)
            cache[batch] = caches.of([str(own["cache"]) if "cache" in own else None for own in found])
            window_nbytes[batch] = np.array(windows_nbytes_of(found), np.float64)  # NaN for None
        return cls(frozenset(keys), tuple(caches), cache, window_nbytes)


@dataclass(frozen=True, eq=False)
class SampleColumns(Sequence[Sample]):
    """Samples of one run, in the order of measuring: a sequence whose items are made when they are asked for.

    All columns have shape (N,). Those of names are numbers of these names.

    Attributes:
        configurations, cells, loads: names, in the order of the whole run.
        clients: names, sorted.
        configuration, cell, load, client: number of the name.
        repeat, attempt: as in ``SampleKey``.
        state: number in ``STATES``.
        iops, nbytes_per_s, latency_mean_ns: as in ``Metrics``; NaN without metrics.
        n_ios, runtime_ns: as in ``Metrics``; 0 without metrics.
        percentile_documents: JSON texts, or values of ``Metrics.latency_percentiles_ns``; None without metrics.
        started_ns, finished_ns: as in ``Sample``.
        reason: texts.
        evidence: JSON texts or values: see ``evidence_with``.
    """

    configurations: tuple[str, ...]
    cells: tuple[Cell, ...]
    loads: tuple[str, ...]
    clients: tuple[str, ...]
    configuration: Ints
    cell: Ints
    load: Ints
    client: Ints
    repeat: Ints
    attempt: Ints
    state: Ints
    iops: Floats
    nbytes_per_s: Floats
    n_ios: Ints
    runtime_ns: Ints
    latency_mean_ns: Floats
    percentile_documents: Objects
    started_ns: Ints
    finished_ns: Ints
    reason: Objects
    evidence: Objects

    @classmethod
    def of(cls, samples: Iterable[Sample]) -> SampleColumns:
        """Return the columns of samples; the same object if they are columns."""
        if isinstance(samples, cls):
            return samples
        made = list(samples)
        keys = [s.key for s in made]
        metrics = [s.metrics or _NO_METRICS for s in made]
        names = Names()
        return cls.with_names(
            names,
            names.configurations.of([k.configuration for k in keys]),
            names.cells.of([k.cell for k in keys]),
            names.loads.of([k.load for k in keys]),
            names.clients.of([k.client for k in keys]),
            np.array([k.repeat for k in keys], np.int64),
            np.array([k.attempt for k in keys], np.int64),
            np.array([STATES.index(s.state) for s in made], np.int64),
            np.array([m.iops for m in metrics], np.float64),
            np.array([m.nbytes_per_s for m in metrics], np.float64),
            np.array([m.n_ios for m in metrics], np.int64),
            np.array([m.runtime_ns for m in metrics], np.int64),
            np.array([m.latency_mean_ns for m in metrics], np.float64),
            objects([None if s.metrics is None else s.metrics.latency_percentiles_ns for s in made]),
            np.array([s.started_ns for s in made], np.int64),
            np.array([s.finished_ns for s in made], np.int64),
            objects([s.reason for s in made]),
            objects([s.evidence for s in made]),
        )

    @classmethod
    def with_names(
        cls,
        names: Names,
        configuration: Ints,
        cell: Ints,
        load: Ints,
        client: Ints,
        *columns: Any,
    ) -> SampleColumns:
        """Return columns whose names have the codes of ``names``; ``columns`` are the others, in order."""
        clients = sorted(names.clients)
        ranks = np.zeros(len(clients), np.int64)
        ranks[[names.clients[client] for client in clients]] = np.arange(len(clients))
        return cls(
            tuple(names.configurations),
            tuple(names.cells),
            tuple(names.loads),
            tuple(clients),
            configuration,
            cell,
            load,
            ranks[client],
            *columns,
        )

    def __len__(self) -> int:
        return len(self.repeat)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> SampleColumns: ...
    def __getitem__(self, index: int | slice) -> Sample | SampleColumns:
        if isinstance(index, slice):
            return self.take(index)
        return next(self.take(np.array([range(len(self))[index]]))._made())

    def __iter__(self) -> Iterator[Sample]:
        for first in range(0, len(self), _AT_ONCE):
            yield from self.take(slice(first, first + _AT_ONCE))._made()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def tails(self) -> Tails:
        """The percentiles of latency, read on first use: that takes a microsecond per sample."""
        return Tails.of(self.percentile_documents)

    @cached_property
    def p99_ns(self) -> Floats:
        """The 99th percentile of latency, read on first use: see ``percentile_ns``."""
        return self.percentile_ns(P99)

    def percentile_ns(self, percentile: float) -> Floats:
        """Return one percentile of latency, NaN where a sample lacks it; in a third of the time of ``tails``."""
        if "tails" in self.__dict__:
            known = self.tails.percentiles
            has_it = percentile in known
            return self.tails.ns[:, known.index(percentile)] if has_it else np.full(len(self), np.nan)
        # In the text of a document of a store, which has one number for each percentile.
        stored = re.compile(rf'"{re.escape(repr(percentile))}": ?([^,}}]+)')
        found = np.full(len(self), np.nan)
        for first in range(0, len(self), _AT_ONCE):
            batch = self.percentile_documents[first : first + _AT_ONCE]
            has_any = np.flatnonzero(batch.astype(np.bool_))
            text = _joined(batch[has_any].tolist())
            values: list[Any] = [] if text is None else stored.findall(text)
            if len(values) != len(has_any):  # some lack it, or are no texts
                values = [_percentile_of(document, percentile) for document in parsed(batch[has_any])]
            found[first + has_any] = np.array(values, np.float64)
        return found

    @cached_property
    def evidence_facts(self) -> EvidenceFacts:
        """What reports need of all evidence, read on first use; it also spares later searches for absent keys."""
        return EvidenceFacts.of(self.evidence)

    def take(self, rows: Rows | slice) -> SampleColumns:
        """Return some of the samples, with the names of all."""
        names = (self.configurations, self.cells, self.loads, self.clients)
        columns = (getattr(self, name)[rows] for name in tuple(self.__dataclass_fields__)[len(names) :])
        taken = SampleColumns(*names, *columns)
        if "tails" in self.__dict__:
            taken.__dict__["tails"] = self.tails.take(rows)
        return taken

    def rows_under(self, load: str) -> Rows:
        """Return the rows of the samples of a load; none without one of this name."""
        code = self.loads.index(load) if load in self.loads else -1
        return np.flatnonzero(self.load == code)

    def evidence_with(self, *keys: str, rows: Rows | None = None) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield (row, evidence) of samples whose evidence has one of the keys, in the order of rows.

        Only these documents are parsed: a text without the key in quotes cannot have it.

        Args:
            rows: where to look; None: everywhere.
        """
        if "evidence_facts" in self.__dict__ and self.evidence_facts.keys.isdisjoint(keys):
            return
        wanted = frozenset(keys)
        every = np.arange(len(self)) if rows is None else rows
        for first in range(0, len(every), _AT_ONCE):
            batch = every[first : first + _AT_ONCE]
            maybe = batch[_mentioning(self.evidence[batch], keys)]
            for row, evidence in zip(maybe.tolist(), parsed(self.evidence[maybe]), strict=True):
                if not wanted.isdisjoint(evidence):
                    yield row, evidence

    def _made(self) -> Iterator[Sample]:
        """Yield all samples; they are in memory together."""
        keys = zip(
            (self.configurations[i] for i in self.configuration.tolist()),
            (self.cells[i] for i in self.cell.tolist()),
            (self.clients[i] for i in self.client.tolist()),
            self.repeat.tolist(),
            self.attempt.tolist(),
            (self.loads[i] for i in self.load.tolist()),
            strict=True,
        )
        columns = (self.iops, self.nbytes_per_s, self.n_ios, self.runtime_ns, self.latency_mean_ns)
        metrics = zip(*(column.tolist() for column in columns), self.tails.documents(), strict=True)
        rest = zip(
            (STATES[i] for i in self.state.tolist()),
            self.started_ns.tolist(),
            self.finished_ns.tolist(),
            self.reason,
            parsed(self.evidence),
            strict=True,
        )
        for key, figures, (state, started_ns, finished_ns, reason, evidence) in zip(
            keys, metrics, rest, strict=True
        ):
            own = None if figures[0] != figures[0] else Metrics(*figures)
            yield Sample(SampleKey(*key), state, own, started_ns, finished_ns, reason, evidence)


def _percentile_of(document: Mapping[Any, float], percentile: float) -> float:
    return next((ns for p, ns in document.items() if float(p) == percentile), np.nan)


def _mentioning(documents: Objects, keys: Sequence[str]) -> NDArray[np.bool_]:
    """Return which of the documents may have one of the keys."""
    found = np.zeros(len(documents), dtype=np.bool_)
    values = documents.tolist()
    text = _joined(values)
    for key in keys:
        mark = f'"{key}"'
        if text is None:
            found |= [mark in one if isinstance(one, str) else key in one for one in values]
        elif mark in text:
            found |= [mark in one for one in values]
        if found.all():
            break
    return found


def _joined(documents: Sequence[Any]) -> str | None:
    """Return texts with commas between them; None if they are not all texts."""
    try:
        return ",".join(documents)
    except TypeError:
        return None


class Names:
    """The names in the columns that are read, and their numbers in the order of appearance."""

    def __init__(self) -> None:
        self.configurations, self.cells, self.loads, self.clients = Codes(), Codes(), Codes(), Codes()


@dataclass(frozen=True, slots=True)
class _NoMetrics:
    """The columns of a sample without metrics."""

    iops: float = np.nan
    nbytes_per_s: float = np.nan
    n_ios: int = 0
    runtime_ns: int = 0
    latency_mean_ns: float = np.nan


_NO_METRICS = _NoMetrics()


def objects(values: Sequence[Any]) -> Objects:
    """Return an array of any values; numpy would look into lists and mappings."""
    found = np.empty(len(values), dtype=np.object_)
    found[:] = values
    return found


def parsed(documents: Iterable[Any]) -> Iterator[Any]:
    """Yield JSON values of texts; values that are no text are returned as they are.

    Many texts are parsed as one list, in half of the time.
    """
    remaining = iter(documents)
    while batch := list(islice(remaining, _AT_ONCE)):
        text = _joined(batch)
        if text is not None:
            yield from from_json(f"[{text}]")
        else:
            yield from (from_json(one) if isinstance(one, str) else one for one in batch)
