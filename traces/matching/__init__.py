"""Completions given to the accesses that wait for them, and what is in flight."""
