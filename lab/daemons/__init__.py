"""The lab's Ceph programs and daemons: found, created, started and stopped."""
