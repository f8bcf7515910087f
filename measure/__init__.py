"""Measurement of one cell: engines, their counters, validity, telemetry."""
