"""Block devices of the lab: loop devices, throttles, mounts, exported images."""
