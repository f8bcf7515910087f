"""The greater Ceph environment: hosts, disks, network and object stores of OSDs."""
