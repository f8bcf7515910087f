"""Count traces in parts, here or on other machines, and join the counts exactly."""
