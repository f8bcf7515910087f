"""What hosts and daemons did while a cell was measured: counters before and after, never during."""
