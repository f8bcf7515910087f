"""When repeats are enough, and which configurations are measured no more."""
