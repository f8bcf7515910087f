"""The network of the lab's clients: its distance, the relay that makes it, and the probe that measures it."""
