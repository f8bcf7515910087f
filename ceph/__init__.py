"""One Ceph cluster: administration, options, pools, CRUSH, hosts and their environment."""
