"""A real one-machine Ceph for people without one, and real workloads to verify with."""
