"""`cephfit report`, `compare` and `runs`: what a store holds."""
