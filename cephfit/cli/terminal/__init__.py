"""What the terminal shows, and files that commands write."""
