"""What an upgrade of Ceph does to workloads, and its page."""
