"""The machines around Ceph: this one, and others over SSH."""
