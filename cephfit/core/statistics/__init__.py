"""Spread of measured values, and percentiles of mixed latency distributions. Pure."""
