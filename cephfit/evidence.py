"""What a sample's evidence says of an independent count: written by what measures, read by what reports."""

from collections.abc import Mapping
from typing import Any

INDEPENDENT_COUNT = "independent_count"
"""What somebody else counted than the program that measured (rule 4 of the design)."""
_WINDOW = "window_nbytes"


def counted(*, source: str, window_nbytes: float, total_nbytes: int, allowed_nbytes: float) -> dict[str, Any]:
    """The document of a count, kept under ``INDEPENDENT_COUNT``.

    Args:
        source: who counted, for people.
        window_nbytes: moved in the measured window.
        total_nbytes: moved from before the program's start to after its end.
        allowed_nbytes: by how much ``window_nbytes`` may differ for reasons that are known.
    """
    return {
        "source": source,
        _WINDOW: round(window_nbytes),
        "total_nbytes": total_nbytes,
        "allowed_nbytes": round(allowed_nbytes),
    }


def not_counted(why: str) -> dict[str, Any]:
    """The document where nobody could count."""
    return {"none_because": why}


def window_nbytes_of(evidence: Mapping[str, Any]) -> float | None:
    """Bytes that were counted in the measured window; None where nobody did."""
    count = evidence.get(INDEPENDENT_COUNT)
    found = count.get(_WINDOW) if isinstance(count, Mapping) else None
    return float(found) if isinstance(found, int | float) else None
