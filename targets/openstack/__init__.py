"""OpenStack as a target, alone or with the Ceph below it."""
