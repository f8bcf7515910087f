"""Ceph's own benchmark programs as engines."""
