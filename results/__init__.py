"""Results: the store of runs and samples, baselines, statistics, reports."""

from cephfit.results.tables.baseline_csv import open_baselines

__all__ = ["open_baselines"]
