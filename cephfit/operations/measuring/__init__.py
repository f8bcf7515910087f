"""Open a target by its name, measure on it, and show progress."""
