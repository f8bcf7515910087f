"""Measuring one cell: engines, their counters, validity, telemetry."""
