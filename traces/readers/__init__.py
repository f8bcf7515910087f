"""One reader for each format of traces."""
