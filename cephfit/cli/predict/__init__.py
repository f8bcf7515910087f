"""`cephfit map`, `place` and `verify`: predictions and their verification."""
