"""A real OpenStack on the lab's Ceph: Keystone, Glance, Placement, Nova, Neutron, Cinder and Heat."""
