"""What a trace tells beside its accesses, as JSON in the metadata of a Parquet file."""

import json
from dataclasses import dataclass, field
from typing import Any

from cephfit.errors import InputError

KEY = "cephfit.trace"
"""Of the metadata."""

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Aside:
    """As a reader of the trace told it; a file by somebody else says nothing.

    Attributes:
        skipped, events, stacked, lost: as in AccessBatch, of the whole trace.
        losses_known: whether the trace would show lost events.
        lacks: what the trace does not say.
        notes: what one must know of it.
        clock_ns: the smallest difference of two times that it tells.
    """

    skipped: dict[str, int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    stacked: tuple[tuple[str, str], ...] = ()
    lost: int = 0
    losses_known: bool = False
    lacks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    clock_ns: int = 1

    def dumps(self) -> str:
        return json.dumps(
            {
                "version": _VERSION,
                "skipped": dict(sorted(self.skipped.items())),
                "events": dict(sorted(self.events.items())),
                "stacked": sorted(self.stacked),
                "lost": self.lost,
                "losses_known": self.losses_known,
                "lacks": list(self.lacks),
                "notes": list(self.notes),
                "clock_ns": self.clock_ns,
            }
        )


def aside_of(metadata: dict[bytes, bytes] | None, where: str) -> Aside:
    """Raises: InputError: it was changed to something else."""
    try:
        found = json.loads((metadata or {}).get(KEY.encode(), b"{}"))
        return Aside(
            _counts(found.get("skipped", {})),
            _counts(found.get("events", {})),
            tuple((_text(upper), _text(lower)) for upper, lower in found.get("stacked", [])),
            _count(found.get("lost", 0)),
            bool(found.get("losses_known", False)),
            tuple(_text(words) for words in found.get("lacks", [])),
            tuple(_text(words) for words in found.get("notes", [])),
            max(_count(found.get("clock_ns", 1)), 1),
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InputError(
            f"the metadata {KEY} of the Parquet file are not those that cephfit writes",
            where=where,
            remedy="convert the trace again, or take these metadata out",
        ) from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError("no count")
    return value


def _counts(value: Any) -> dict[str, int]:
    return {_text(name): _count(n) for name, n in value.items()}
