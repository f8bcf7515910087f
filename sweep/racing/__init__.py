"""Early stopping: when repeats are enough, and which configurations need no more of them."""
