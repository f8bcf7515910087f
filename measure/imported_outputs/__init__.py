"""Outputs of benchmarks that were run without cephfit: one module per family of formats."""
