"""Targets that need no Ceph: a simulated cluster, and a local file or device."""
