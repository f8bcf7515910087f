"""Record the accesses to a block device."""
