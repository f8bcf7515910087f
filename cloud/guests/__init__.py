"""Benchmark guests: their start, transport, jobs and placement."""
