"""One reader for each trace format."""
