"""Trace files to accesses to workload profiles; capture."""

from cephfit.traces.profiling import profile_files, profiles_by_disk

__all__ = ["profile_files", "profiles_by_disk"]
