"""Storage servers of other protocols than Ceph's as targets: iSCSI, NFS and Swift."""
