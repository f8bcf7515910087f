"""Fleets of images: what they ask for, and whether a pool has the capacity."""
