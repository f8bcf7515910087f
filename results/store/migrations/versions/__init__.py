"""One module per step. A step never changes after its release, and imports nothing of the store."""
