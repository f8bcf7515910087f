"""Trace files to accesses to workload profiles; capture."""

from cephfit.traces.profiling import profile_files

__all__ = ["profile_files"]
