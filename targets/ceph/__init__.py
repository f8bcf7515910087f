"""Ceph clusters as targets: a whole cluster, or one pool of it."""
