"""What a configuration serves per second, at which latency, and for how many machines."""
