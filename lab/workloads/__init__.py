"""Real workloads that verify predictions: pgbench, and any program."""
