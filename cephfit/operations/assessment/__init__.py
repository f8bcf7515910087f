"""How good predictions are, from workloads that were really run."""
