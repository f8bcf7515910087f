"""Independent counters of an engine's I/O."""
