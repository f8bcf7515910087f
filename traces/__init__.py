"""Trace files to accesses to workload profiles; capture."""
