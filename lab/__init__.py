"""A real one-machine Ceph, and real workloads that verify predictions."""
