"""Resources of a run: found by owner, deleted in order."""
