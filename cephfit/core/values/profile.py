"""Workload profiles, and their JSON form for files, commands and stores."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.tabular import Table, Tabular
from cephfit.core.values.cells import CELLS, RANDOM_THRESHOLD_LBN, SIZE_BINS, Cell, Op
from cephfit.core.values.demand import (
    Commits,
    Demand,
    commits_from_json,
    commits_to_json,
    demands_from_json,
    demands_to_json,
)

_LONE_HALVES = re.compile("[\ud800-\udfff]")
"""Surrogates, with which Python replaces bytes of a file name that are not UTF-8. UTF-8 cannot encode them."""


def plain(text: str) -> str:
    """Replace characters that cannot be written as UTF-8 by U+FFFD, so that files and databases take the text."""
    return _LONE_HALVES.sub("\ufffd", text)


def plain_document(document: Any) -> Any:
    """Apply ``plain`` to all texts and keys of nested JSON values."""
    if isinstance(document, str):
        return plain(document)
    if isinstance(document, Mapping):
        return {plain_document(key): plain_document(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [plain_document(value) for value in document]
    return document


PROFILE_SCHEMA_VERSION = 2
_READABLE_VERSIONS = (1, 2)
"""Version 2 added alignment, demands, idle time and commits, all optional."""

COARSE = "coarse"
"""Key of a description: true if the profile is from counters, so that only rates and mean sizes are known."""

_BIN_NAMES = tuple(b.name for b in SIZE_BINS)
_OPS = (Op.READ, Op.WRITE)
_MOST = 2**63 - 1
"""Largest number of accesses of a cell: that of a 64-bit counter."""


@dataclass(frozen=True, slots=True)
class Profile(Tabular):
    """What a workload does.

    Attributes:
        name: of the workload, for display.
        accesses: count per op and size bin name; every op and bin is present.
        random: share of random accesses per op, 0 to 1; 0 also if unknown, see ``random_share``.
        random_by_bin: share of random accesses per op and bin name, if the source has it (a histogram has not:
            its sizes and distances are marginals); bins without accesses are omitted.
        description: all other data of the source: disks, times, histograms in their original limits, skipped
            records. JSON values only.
        alignment: per op and bin name, the share of accesses that start at a multiple of 4096, 8192 and 65536
            bytes (keys ``4K``, ``8K``, ``64K``) and of their own size (``own``); None if unknown; bins without
            accesses are omitted.
        demands: the accesses by kind, with the time waited for them; None if the source has only counts.
        idle_seconds: time of the trace without I/O outstanding; None if unknown.
        commits: flushes and synchronous writes; None if the format does not tell.
    """

    name: str
    accesses: Mapping[Op, Mapping[str, int]]
    random: Mapping[Op, float]
    random_by_bin: Mapping[Op, Mapping[str, float]] | None = None
    description: Mapping[str, Any] = field(default_factory=dict)
    alignment: Mapping[Op, Mapping[str, Mapping[str, float]]] | None = None
    demands: tuple[Demand, ...] | None = None
    idle_seconds: float | None = None
    commits: Commits | None = None

    def __post_init__(self) -> None:
        for op in Op:
            if tuple(self.accesses[op]) != _BIN_NAMES or any(n < 0 for n in self.accesses[op].values()):
                raise ValueError(f"accesses[{op}] must count every size bin: {self.accesses[op]}")
            shares = [self.random[op], *(self.random_by_bin or {op: {}})[op].values()]
            if not all(0 <= share <= 1 for share in shares):
                raise ValueError(f"random shares of {op} must be 0 to 1: {shares}")

    @property
    def n_accesses(self) -> int:
        """Number of all accesses."""
        return sum(sum(counts.values()) for counts in self.accesses.values())

    def random_share(self, op: Op) -> float | None:
        """Share of random accesses; None if unknown: the op has no accesses, or only one on each disk."""
        is_judged = self.random_by_bin is None or bool(self.random_by_bin[op]) or self.random[op] > 0
        return self.random[op] if is_judged and any(self.accesses[op].values()) else None

    def cell_counts(self) -> dict[Cell, float]:
        """Accesses per cell, all 20; the sum is ``n_accesses``.

        A size bin's accesses are split by the bin's share of random accesses where known, else by the op's share
        (Meyer 2017, section 2.2.4).
        """
        return dict(zip(CELLS, self.counts(), strict=True))

    def counts(self) -> list[float]:
        """Return the values of ``cell_counts``, in the order of ``CELLS``: without the keys, which take longer."""
        of_ops = []
        for op in _OPS:
            counts, overall = self.accesses[op], self.random[op]
            by_bin = (self.random_by_bin or {}).get(op, {})
            of_ops.append([(counts[name], by_bin.get(name, overall)) for name in _BIN_NAMES])
        found: list[float] = []
        for (reads, random_reads), (writes, random_writes) in zip(*of_ops, strict=True):
            found += (reads * (1 - random_reads), writes * (1 - random_writes))
            found += (reads * random_reads, writes * random_writes)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the profile file's content."""
        document: dict[str, Any] = {
            "schema_version": PROFILE_SCHEMA_VERSION,
            "name": plain(self.name),
            "random_threshold_lbn": self.description.get("random_threshold_lbn", RANDOM_THRESHOLD_LBN),
            "accesses": {op.value: dict(self.accesses[op]) for op in Op},
            "random": {op.value: self.random[op] for op in Op},
        }
        if self.random_by_bin is not None:
            document["random_by_bin"] = {op.value: dict(self.random_by_bin[op]) for op in Op}
        if self.alignment is not None:
            document["alignment"] = {
                op.value: {name: dict(shares) for name, shares in self.alignment[op].items()} for op in Op
            }
        if self.demands is not None:
            document["demands"] = demands_to_json(self.demands)
        if self.idle_seconds is not None:
            document["idle_seconds"] = self.idle_seconds
        if self.commits is not None:
            document["commits"] = commits_to_json(self.commits)
        document["description"] = plain_document(self.description)
        return document

    @classmethod
    def from_json(cls, document: Any, *, where: str = "profile") -> "Profile":
        """Read a profile file's content.

        Raises:
            InputError: a part is missing, of the wrong type or out of range, or there is no access; the error
                names it.
        """
        if not isinstance(document, dict):
            raise InputError(
                "a profile is a JSON object", where=where, remedy="create one with `cephfit trace profile TRACE`"
            )
        version = document.get("schema_version")
        if isinstance(version, bool) or version not in _READABLE_VERSIONS:
            raise InputError(
                f"schema_version is {version!r}, this cephfit reads {' and '.join(map(str, _READABLE_VERSIONS))}",
                where=where,
                remedy="create the profile again with `cephfit trace profile`",
            )
        accesses = {op: _counts(document, op, where) for op in Op}
        if not any(any(counts.values()) for counts in accesses.values()):
            raise InputError(
                "the profile counts no access, so nothing is known about its workload",
                where=f"{where}: accesses",
                remedy="profile a trace that was recorded while the workload ran",
            )
        random = {op: _share(_part(document, "random", where), op.value, f"{where}: random", 0.0) for op in Op}
        by_bin: dict[Op, dict[str, float]] | None = None
        if "random_by_bin" in document:
            table = _part(document, "random_by_bin", where)
            by_bin = {}
            for op in Op:
                row = _part(table, op.value, f"{where}: random_by_bin")
                _known(row, _BIN_NAMES, f"{where}: random_by_bin.{op}")
                by_bin[op] = {b: _share(row, b, f"{where}: random_by_bin.{op}", None) for b in row}
        description = document.get("description", {})
        if not isinstance(description, dict):
            raise InputError("description is not an object", where=where)
        name = plain(str(document.get("name", "workload")))
        return cls(
            name,
            accesses,
            random,
            by_bin,
            plain_document(description),
            _alignment(document, where),
            demands_from_json(document["demands"], where=where) if "demands" in document else None,
            _seconds(document.get("idle_seconds"), f"{where}: idle_seconds"),
            commits_from_json(document["commits"], where=where) if "commits" in document else None,
        )

    def _table(self) -> Table:
        counts = self.cell_counts()
        total = self.n_accesses
        return Table(
            f"Workload {self.name}: {total:,} accesses",
            ("size", "pattern", "accesses", "share"),
            tuple((c.size.name, c.pattern.value, n, n / total if total else None) for c, n in counts.items()),
        )

    def dumps(self) -> str:
        """Return the text of the profile file."""
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"

    @classmethod
    def loads(cls, text: str, *, where: str = "profile") -> "Profile":
        """Read the text of a profile file.

        Raises:
            InputError: not JSON, or not a profile.
        """
        remedy = "create a profile with `cephfit trace profile TRACE -o profile.json`"
        try:
            document = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        except json.JSONDecodeError as error:
            raise InputError(f"not JSON: {error.msg}", where=f"{where}:{error.lineno}", remedy=remedy) from None
        except (ValueError, RecursionError) as error:  # NaN, numbers with thousands of digits, unlimited nesting
            raise InputError(f"not JSON that can be read: {error}", where=where, remedy=remedy) from None
        return cls.from_json(document, where=where)


def _no_constant(name: str) -> float:
    """Refuse NaN and Infinity, which Python's JSON reads but standard JSON and the stores do not."""
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    """Refuse numbers that only infinity is nearest to."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is too large")
    return number


def _part(document: Any, key: str, where: str) -> dict[str, Any]:
    part = document.get(key)
    if not isinstance(part, dict):
        raise InputError(f"{key!r} is missing or not an object", where=where)
    return part


def _known(row: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    for key in row:
        if key not in names:
            raise InputError(f"unknown entry {key!r}", where=where, remedy=f"known are {', '.join(names)}")


def _counts(document: Any, op: Op, where: str) -> dict[str, int]:
    row = _part(_part(document, "accesses", where), op.value, f"{where}: accesses")
    _known(row, _BIN_NAMES, f"{where}: accesses.{op}")
    counts: dict[str, int] = {}
    for name in _BIN_NAMES:
        n = row.get(name, 0)
        if not isinstance(n, int) or isinstance(n, bool) or n < 0:
            raise InputError(f"{n!r} is not a count", where=f"{where}: accesses.{op}.{name}")
        if n > _MOST:
            raise InputError(
                f"a number of {len(str(n))} digits is not a count of accesses",
                where=f"{where}: accesses.{op}.{name}",
                remedy=f"counts go up to {_MOST}",
            )
        counts[name] = n
    return counts


def _alignment(document: Any, where: str) -> dict[Op, dict[str, dict[str, float]]] | None:
    if "alignment" not in document:
        return None
    table = _part(document, "alignment", where)
    found: dict[Op, dict[str, dict[str, float]]] = {}
    for op in Op:
        place = f"{where}: alignment.{op}"
        bins = _part(table, op.value, f"{where}: alignment")
        _known(bins, _BIN_NAMES, place)
        found[op] = {
            name: {to: _share(_part(bins, name, place), to, f"{place}.{name}", None) for to in bins[name]}
            for name in bins
        }
    return found


def _seconds(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST:
        raise InputError(f"{value!r} is not a time", where=where, remedy="seconds are a number of at least 0")
    return float(value)


def _share(row: Mapping[str, Any], key: str, where: str, default: float | None) -> float:
    value = row.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(f"{value!r} is not a share", where=f"{where}.{key}", remedy="shares go from 0 to 1")
    return float(value)


def n_images(profile: Profile) -> int:
    """Return the number of images of which a profile is the mean; 1 if it does not tell."""
    images = profile.description.get("images")
    n = images.get("n") if isinstance(images, Mapping) else None
    return n if isinstance(n, int) and n > 0 else 1
