"""blkparse's text."""
