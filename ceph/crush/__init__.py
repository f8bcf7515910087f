"""Parts appended to a CRUSH map: tried offline, injected, removed."""
