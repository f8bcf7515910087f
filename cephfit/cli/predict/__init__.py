"""`cephfit map`, `place`, `verify` and `probe`: predictions, and runs that verify or refine them."""
