"""The execution of a sweep: preflight, schedule, runner, progress."""
