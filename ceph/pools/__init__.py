"""Pools: planned, created, read back, changed, deleted."""
