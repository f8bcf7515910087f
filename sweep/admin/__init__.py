"""Ways to administer a Ceph cluster; each implements ``cephfit.protocols.CephAdmin``."""
