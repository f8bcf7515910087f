"""Commands that compare predictions with real runs: `cephfit verify`, `probe`, `evaluate` and `assess`."""
