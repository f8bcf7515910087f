"""Utilization of hosts and OSDs during a run, and its bottleneck."""
