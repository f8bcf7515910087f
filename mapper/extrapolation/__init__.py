"""Predictions beyond what was measured: other distances, other numbers of clients."""
