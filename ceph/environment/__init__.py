"""Settings around Ceph: hosts, network emulation, object stores, page caches."""
