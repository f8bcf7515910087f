"""OpenStack: stacks, guests, images, volumes, quotas, cleanup."""
