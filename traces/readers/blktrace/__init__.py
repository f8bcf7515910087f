"""Raw blktrace recordings."""
