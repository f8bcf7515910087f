"""Separated text read by compiled loops."""
