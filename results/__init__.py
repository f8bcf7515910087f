"""The store of samples and runs, baselines, statistics, reports."""
