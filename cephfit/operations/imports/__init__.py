"""Results of benchmarks that were run without cephfit: read, named and stored."""
