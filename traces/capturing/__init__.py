"""Recording what a block device is asked to do."""
