"""One host, local or over SSH: its files and programs."""
