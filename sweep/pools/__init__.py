"""Pools: what a declaration comes to, made, read back, changed and deleted."""
