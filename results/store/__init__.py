"""The store of runs and samples."""
