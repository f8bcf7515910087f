"""Match completions with accesses, and count the accesses in flight."""
