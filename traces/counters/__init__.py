"""Counters of a storage system: the I/O of every image of a fleet, without traces."""
