"""How options reach daemons and clients, how they are read back, what must restart."""
