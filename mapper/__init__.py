"""Profiles x baselines to predictions, and how good they were."""
