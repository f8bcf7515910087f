"""The guest image: built and uploaded."""
