"""The options of Ceph: how a cluster describes them, their history, their values, their risks."""
