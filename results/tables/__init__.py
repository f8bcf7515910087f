"""Baselines, samples and comparisons as CSV."""
