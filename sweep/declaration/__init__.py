"""Sweep files: YAML to frozen values; each error names its line."""
