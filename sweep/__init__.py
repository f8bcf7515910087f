"""Sweep files, plans, designs of experiments, execution and verification."""
