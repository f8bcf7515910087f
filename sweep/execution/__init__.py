"""A run of a sweep: preflight, schedule, runner, progress."""
