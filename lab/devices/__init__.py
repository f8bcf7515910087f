"""Block devices of the lab: loop devices, their speed, mounts, exported images."""
