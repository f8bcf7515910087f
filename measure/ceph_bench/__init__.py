"""Ceph's benchmark programs as engines."""
