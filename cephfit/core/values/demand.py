"""What a workload asks of the storage by kind of access, and a clone of the workload that asks the same.

The model ``waiting`` uses the demands of a profile. A clone is phases of fio that repeat the accesses of one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Pattern

ALIGNMENTS_NBYTES: tuple[int, ...] = (4096, 8192, 65536)
"""Alignments that a profile counts, in addition to that to an access's own size."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Accesses of one kind, and the time that the workload waited for them.

    Attributes:
        pattern: op, and whether the accesses are random.
        nbytes: mean size of an access in bytes.
        is_aligned: whether the accesses start at a multiple of their own size; None if unknown.
        depth: mean number of outstanding accesses while these were outstanding, these included, weighted by time;
            at least 1; None if unknown.
        is_sync: whether the application waits for the accesses (Linux's REQ_SYNC; reads always are); False: they
            are written back in the background; None if unknown.
        accesses: their number; not whole where shares of counts are taken.
        waiting_seconds: time with I/O outstanding, every instant divided evenly among the accesses outstanding
            then; None if unknown.
    """

    pattern: Pattern
    nbytes: float
    is_aligned: bool | None
    depth: float | None
    is_sync: bool | None
    accesses: float
    waiting_seconds: float | None

    def __post_init__(self) -> None:
        if not (0 < self.nbytes < math.inf and 0 < self.accesses < math.inf):
            raise ValueError(f"a demand has accesses of a size, not {self.accesses} of {self.nbytes} bytes")
        if self.depth is not None and not 1 <= self.depth < math.inf:
            raise ValueError(f"a depth is at least 1, not {self.depth}")
        if self.waiting_seconds is not None and not 0 <= self.waiting_seconds < math.inf:
            raise ValueError(f"a waiting time is not {self.waiting_seconds}")


@dataclass(frozen=True, slots=True)
class Commits:
    """How a workload makes its writes durable.

    Attributes:
        flushes: number of flushes of the device's cache, including those that precede a write in one request.
        flush_waiting_seconds: time with a flush outstanding, divided as in ``Demand``; None if unknown. A flush
            that precedes a write in one request is part of the write's waiting time.
        fua_writes: writes with forced unit access; None if the format does not tell.
        sync_writes: writes that the application waits for; None if the format does not tell.
    """

    flushes: int
    flush_waiting_seconds: float | None = None
    fua_writes: int | None = None
    sync_writes: int | None = None

    def __post_init__(self) -> None:
        if any(n < 0 for n in (self.flushes, self.fua_writes or 0, self.sync_writes or 0)):
            raise ValueError("a number is negative")
        if not 0 <= (self.flush_waiting_seconds or 0.0) < math.inf:
            raise ValueError(f"a waiting time is not {self.flush_waiting_seconds}")


_COLUMNS = tuple(f.name for f in fields(Demand))


def demands_to_json(demands: Sequence[Demand]) -> dict[str, Any]:
    """Return the demands as a table with named columns."""
    rows = [[d.pattern.value, *(getattr(d, name) for name in _COLUMNS[1:])] for d in demands]
    return {"columns": list(_COLUMNS), "rows": rows}


def demands_from_json(document: Any, *, where: str) -> tuple[Demand, ...]:
    """Read what ``demands_to_json`` wrote.

    Raises:
        InputError: a column is missing, or a value is impossible; names the row.
    """
    if not isinstance(document, Mapping) or not isinstance(document.get("rows"), list):
        raise InputError("'demands' is not a table of columns and rows", where=where)
    columns = document.get("columns")
    if not isinstance(columns, list) or any(name not in columns for name in _COLUMNS):
        raise InputError(f"'demands' must have the columns {', '.join(_COLUMNS)}", where=where)
    found = []
    for number, row in enumerate(document["rows"]):
        try:
            values = dict(zip(columns, row, strict=True))
            found.append(
                Demand(
                    Pattern(values["pattern"]),
                    float(values["nbytes"]),
                    _truth(values["is_aligned"]),
                    None if values["depth"] is None else float(values["depth"]),
                    _truth(values["is_sync"]),
                    float(values["accesses"]),
                    None if values["waiting_seconds"] is None else float(values["waiting_seconds"]),
                )
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"not a demand: {error}", where=f"{where}.demands.rows[{number}]") from None
    return tuple(found)


def commits_to_json(commits: Commits) -> dict[str, Any]:
    return {f.name: getattr(commits, f.name) for f in fields(Commits)}


def commits_from_json(document: Any, *, where: str) -> Commits:
    """Read what ``commits_to_json`` wrote.

    Raises:
        InputError: it is not an object, or a value is not a number of at least 0.
    """
    try:
        flushes = document["flushes"]
        waiting, fua, sync = (
            document.get(name) for name in ("flush_waiting_seconds", "fua_writes", "sync_writes")
        )
        return Commits(
            int(flushes),
            None if waiting is None else float(waiting),
            None if fua is None else int(fua),
            None if sync is None else int(sync),
        )
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise InputError(f"not counts of commits: {error}", where=f"{where}.commits") from None


def _truth(value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true, false nor null")
    return value


PASSES_PER_SECOND = "passes/s"
"""Metric of a clone: passes through all accesses of its profile per second, the inverse of the run time."""

CLONE_ERROR = 0.13
"""Standard deviation of the log of a clone's relative performance over the workload's.

It was measured with clones of six workloads on twelve configurations (docs/evidence.md). A clone has the
workload's sizes, alignment, mix, depths and flushes on the real configuration. It lacks the order of its accesses
and what depends on their results.
"""

MOST_CANDIDATES = 4
"""Most configurations of a probe, with the default: about ten minutes on a small cluster."""


@dataclass(frozen=True, slots=True)
class ClonePhase:
    """Accesses of one depth and alignment, issued as one mix.

    Attributes:
        name: of the phase, and of fio's section.
        options: fio's options for it, one ``key=value`` each, without file, size and run time.
        accesses: their number in one pass.
        seconds: expected time of one pass in this phase, with pauses: it decides on the share of the run time.
        paused_seconds: pauses in one pass, part of the phase's time.
        in_background: whether the workload does not wait for these accesses.
    """

    name: str
    options: tuple[str, ...]
    accesses: float
    seconds: float
    paused_seconds: float
    in_background: bool


@dataclass(frozen=True, slots=True)
class WorkloadClone:
    """A workload as phases that run one after the other.

    Attributes:
        profile: name of the workload.
        phases: at least one.
        idle_seconds: time of one pass without an access outstanding; the phases' pauses are a part of it.
        behind_seconds: time of the accesses in the background in the trace, which idle time can hide.
        nbytes: size of the used part of the volume.
        notes: what the clone does not reproduce.
    """

    profile: str
    phases: tuple[ClonePhase, ...]
    idle_seconds: float
    behind_seconds: float
    nbytes: int
    notes: tuple[str, ...] = ()

    def seconds_of_pass(self, seconds_per_access: Mapping[str, float]) -> float:
        """Return the time of one pass, in seconds.

        It adds up as in the model ``waiting`` (docs/mathematics.md), but the foreground leaves no storage to the
        background: how much it would leave is not measured here.

        Args:
            seconds_per_access: by the name of the phase, pauses included.
        """
        spent = {p.name: p.accesses * seconds_per_access[p.name] for p in self.phases}
        foreground = sum(spent[p.name] - p.paused_seconds for p in self.phases if not p.in_background)
        background = sum(spent[p.name] for p in self.phases if p.in_background)
        if not self.behind_seconds:
            return foreground + max(self.idle_seconds, background)
        traced = self.idle_seconds + self.behind_seconds
        computing = self.idle_seconds + self.idle_seconds / traced * self.behind_seconds
        exposed = (traced - max(computing, self.behind_seconds)) / self.behind_seconds
        of_work = exposed if self.behind_seconds > computing else 0.0
        return foreground + max(computing + exposed * background, (1 + of_work) * background)

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return {**asdict(self), "phases": [{**asdict(p), "options": list(p.options)} for p in self.phases]}
