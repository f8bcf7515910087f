"""Sweep files, plans, designs of experiments, racing, execution and verification."""
