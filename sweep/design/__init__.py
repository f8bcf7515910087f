"""Designs of experiments: the configurations that they generate, and the effects that their samples show."""
