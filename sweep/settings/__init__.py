"""How options reach the daemons and clients of a cluster, how they are read back, and what must restart."""
