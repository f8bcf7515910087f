"""Output of commands: tables, JSON, and files."""
