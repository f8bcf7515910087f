"""`cephfit sweep`: measure configurations."""
