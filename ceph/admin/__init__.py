"""Commands sent to a cluster, by librados, the ceph program or REST."""
