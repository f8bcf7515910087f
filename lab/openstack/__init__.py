"""A real OpenStack beside the lab's Ceph: Keystone, Glance, Placement, Nova, Neutron, Cinder and Heat."""
