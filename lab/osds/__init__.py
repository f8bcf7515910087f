"""The lab's OSDs: disks, layout, creation."""
