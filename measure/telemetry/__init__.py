"""What hosts and OSDs did during a run, and what limited it."""
