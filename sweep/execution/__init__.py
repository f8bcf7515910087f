"""The execution of a sweep: preflight, schedule, early stopping, runner, progress."""
