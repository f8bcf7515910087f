"""Independent counters of the I/O that an engine did."""
