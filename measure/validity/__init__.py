"""Whether a sample can be trusted."""
