"""Rates, latencies and amplification of operations on files, from the samples of engine ``micro``. Pure.

Amplification is what network, disks and volumes moved, by what the program asked for: bytes per byte for
operations on data, bytes per operation for operations on names.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cephfit.core.protocols import Applied
from cephfit.core.statistics.sample_columns import OK, SampleColumns
from cephfit.core.units import NS_PER_S
from cephfit.core.values.cells import ASKED, MOVED, VOLUME_MOVED, FileCell
from cephfit.core.values.sample import Run, Sample
from cephfit.results.statistics.loads import Repeats, sync_in_words
from cephfit.results.statistics.summary_statistics import mean

_COUNTERS: Mapping[str, tuple[str, str]] = {
    "volume_read": (VOLUME_MOVED, "read_nbytes"),
    "volume_written": (VOLUME_MOVED, "written_nbytes"),
    "wire": (MOVED, "wire_nbytes"),
    "disk_read": (MOVED, "disk_read_nbytes"),
    "disk_written": (MOVED, "disk_written_nbytes"),
}
"""Name of an amplification to the place of its bytes in a sample's evidence."""
AMPLIFICATIONS = tuple(_COUNTERS)
_PATH = re.compile(r"greater/client_network/(?P<key>rate_mbit|delay_ms) = (?P<value>[0-9.]+)")


@dataclass(frozen=True, slots=True)
class OperationFigures:
    """One operation under one load, on one configuration of a run. Rates are sums over the clients.

    Attributes:
        run: that measured it.
        configuration: name.
        load: name; empty: the measurement's own.
        cell: the operation.
        rates: operations per second, of each round.
        latency_mean_ns: mean over rounds and operations, without flushes.
        p99_ns: of the slowest client, mean over rounds; None if it is unknown.
        amplification: by names of ``AMPLIFICATIONS``, those that were counted.
    """

    run: Run
    configuration: str
    load: str
    cell: FileCell
    rates: tuple[float, ...]
    latency_mean_ns: float
    p99_ns: float | None
    amplification: Mapping[str, float]

    @property
    def rate(self) -> float:
        """Mean over the rounds."""
        return mean(self.rates)

    @property
    def has_data(self) -> bool:
        """Whether amplification is per byte; otherwise it is per operation."""
        return self.cell.operation.has_data

    @property
    def in_flight_nbytes(self) -> float:
        """Mean bytes of data on their way, by Little's law: rate x latency x size."""
        return self.rate * self.latency_mean_ns / NS_PER_S * self.cell.size.benchmark_nbytes


def operation_figures(run: Run, samples: Iterable[Sample]) -> tuple[OperationFigures, ...]:
    """Return the figures of a run, in the order of configurations, loads and operations.

    Rounds count in which all clients are ok.
    """
    columns = SampleColumns.of(samples)
    rounds: dict[tuple[str, str, FileCell], dict[int, list[int]]] = {}
    for row in np.flatnonzero(columns.state == OK).tolist():
        cell = columns.cells[columns.cell[row]]
        if isinstance(cell, FileCell):
            place = (columns.configurations[columns.configuration[row]], columns.loads[columns.load[row]], cell)
            rounds.setdefault(place, {}).setdefault(int(columns.repeat[row]), []).append(row)
    found = [
        _figures(run, place, [Repeats(columns, np.array([rows])) for rows in by_round.values()])
        for place, by_round in rounds.items()
    ]
    order = {operation: i for i, operation in enumerate(type(found[0].cell.operation))} if found else {}
    return tuple(
        sorted(
            found,
            key=lambda f: (
                f.configuration != "A",
                f.configuration,
                f.load,
                order[f.cell.operation],
                f.cell.size.name,
            ),
        )
    )


def _figures(run: Run, place: tuple[str, str, FileCell], rounds: Sequence[Repeats]) -> OperationFigures:
    configuration, load, cell = place
    tails = [p99 for own in rounds for p99 in own.slowest_p99_ns() if p99 is not None]
    return OperationFigures(
        run=run,
        configuration=configuration,
        load=load,
        cell=cell,
        rates=tuple(rate for own in rounds for rate in own.sums(own.samples.iops)),
        latency_mean_ns=mean([mean_ns for own in rounds for mean_ns in own.latency_mean_ns()]),
        p99_ns=mean(tails) if tails else None,
        amplification=_amplification(_samples_of(rounds), per_byte=cell.operation.has_data),
    )


def _samples_of(rounds: Sequence[Repeats]) -> list[list[Sample]]:
    return [list(own.samples.take(own.rows.ravel())) for own in rounds]


def _amplification(rounds: Sequence[list[Sample]], *, per_byte: bool) -> dict[str, float]:
    """Return what was moved in all rounds by what was asked in them; only counters that all rounds have."""
    samples = [sample for own in rounds for sample in own]
    asked = sum(_number(s, ASKED, "nbytes" if per_byte else "operations") or 0 for s in samples)
    found = {}
    for name, (group, key) in _COUNTERS.items():
        by_round = [[n for s in own if (n := _number(s, group, key)) is not None] for own in rounds]
        if asked and all(by_round):
            found[name] = sum(sum(own) for own in by_round) / asked
    return found


def _number(sample: Sample, group: str, key: str) -> float | None:
    figures = sample.evidence.get(group)
    value = figures.get(key) if isinstance(figures, Mapping) else None
    return float(value) if isinstance(value, int | float) else None


@dataclass(frozen=True, slots=True)
class PathWindow:
    """The network of the clients of a configuration, where it has a bandwidth and a delay of its own.

    Attributes:
        rate_mbit: 10**6 bits per second.
        delay_ms: of each direction.
    """

    rate_mbit: float
    delay_ms: float

    @property
    def nbytes(self) -> float:
        """Bandwidth x round trip: the bytes that must be on their way to use all of the bandwidth."""
        return self.rate_mbit * 1e6 / 8 * 2 * self.delay_ms / 1e3


def window_of(applied: Applied) -> PathWindow | None:
    """Return the clients' network as read back from a configuration; None without a bandwidth or a delay."""
    values = {
        match["key"]: float(match["value"]) for setting in applied.read_back if (match := _PATH.fullmatch(setting))
    }
    if not values.get("rate_mbit") or not values.get("delay_ms"):
        return None
    return PathWindow(values["rate_mbit"], values["delay_ms"])


@dataclass(frozen=True, slots=True)
class Contender:
    """A configuration of a run, as a column of a table."""

    run_id: str
    configuration: str
    title: str


def contenders_of(figures: Sequence[OperationFigures]) -> tuple[Contender, ...]:
    """Return the columns of a table: named after what distinguishes them, targets and configurations."""
    keys = dict.fromkeys((f.run.run_id, f.configuration, f.run.target) for f in figures)
    targets = {target for _, _, target in keys}
    configurations = {configuration for _, configuration, _ in keys}
    n_runs = len({run_id for run_id, _, _ in keys})

    def title(run_id: str, configuration: str, target: str) -> str:
        parts = [target] if len(targets) > 1 or len(configurations) == 1 else []
        parts += [run_id] if n_runs > len(targets) else []
        return " ".join([*parts, *([configuration] if len(configurations) > 1 else [])])

    return tuple(
        Contender(run_id, configuration, title(run_id, configuration, target))
        for run_id, configuration, target in keys
    )


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One operation under one load, over all contenders.

    Attributes:
        cell: name of the operation.
        load: as text.
        figures: of each contender; None where it was not measured.
    """

    cell: str
    load: str
    figures: tuple[OperationFigures | None, ...]

    @property
    def fastest(self) -> int | None:
        """The contender all of whose rounds are above all rounds of the others; None without one."""
        measured = [(f.rate, i) for i, f in enumerate(self.figures) if f is not None]
        if len(measured) < 2:
            return None
        best = max(measured)[1]
        own = self.figures[best]
        others = [max(f.rates) for i, f in enumerate(self.figures) if f is not None and i != best]
        return best if own is not None and min(own.rates) > max(others) else None


def rows_of(
    figures: Sequence[OperationFigures], contenders: Sequence[Contender], load_words: Callable[[str], str]
) -> tuple[OperationRow, ...]:
    """Return a row for each operation and load, in the order of the figures."""
    by_place = {(f.cell, f.load, f.run.run_id, f.configuration): f for f in figures}
    places = dict.fromkeys((f.load, f.cell) for f in figures)
    return tuple(
        OperationRow(
            str(cell),
            load_words(load),
            tuple(by_place.get((cell, load, c.run_id, c.configuration)) for c in contenders),
        )
        for load, cell in places
    )


def load_descriptions(samples: Iterable[Sample]) -> Callable[[str], str]:
    """Return a function that describes a load: threads, clients, and flushes after how many operations."""
    words: dict[str, str] = {}
    for sample in samples:
        load = sample.evidence.get("load")
        if sample.key.load in words or not isinstance(load, Mapping):
            continue
        parts = [f"{load['clients']} clients"] if load["clients"] > 1 else []
        parts += [f"{load['iodepth']} threads"] if load["iodepth"] > 1 else []
        sync = str(load.get("sync") or "")
        words[sample.key.load] = ", ".join(
            [*parts, sync_in_words(sync).replace("write", "operation") or "no flushes"]
        )
    return lambda load: words.get(load, load)
