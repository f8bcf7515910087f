"""The options of Ceph: catalogue, history over releases, values, risks."""
