"""cephfit: which Ceph configuration fits an OpenStack workload, by how much, and how sure that is.

This package holds the vocabulary that every room shares; see docs/design.md for the rooms.
"""

from cephfit._version import __version__

__all__ = ["__version__"]
