"""One RBD image used by several clients at once, with and without locks."""
