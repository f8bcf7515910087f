"""The full description of a workload: over time, over the disk, in phases, in plots."""
