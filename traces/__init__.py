"""Turn trace files into accesses and workload profiles; capture and replay traces."""

from cephfit.traces.profiling import profile_files, profiles_by_disk

__all__ = ["profile_files", "profiles_by_disk"]
