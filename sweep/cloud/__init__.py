"""OpenStack: stacks of benchmark clients, what they need, and how they are found and deleted again."""
