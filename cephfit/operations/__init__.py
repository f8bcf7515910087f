"""Operations that the command line and the Python API share: open a target, measure a sweep, show progress."""
