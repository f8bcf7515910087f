"""The network between a lab's clients and its Ceph, with a distance that can be set."""
