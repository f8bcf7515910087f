"""The store of samples and runs, baselines, statistics, reports."""

from cephfit.results.sources import open_baselines

__all__ = ["open_baselines"]
