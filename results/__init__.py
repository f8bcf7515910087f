"""Results: the store of runs and samples, baselines, statistics, reports."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cephfit.results.tables.baseline_csv import open_baselines

__all__ = ["open_baselines"]


def __getattr__(name: str) -> Any:
    """Import ``open_baselines`` on use: lists of runs do without the packages for statistics."""
    if name != "open_baselines":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cephfit.results.tables.baseline_csv import open_baselines

    return open_baselines
