"""Cleanup: the resources of a run, found by owner and deleted in order."""
