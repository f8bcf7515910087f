"""Configurations proposed one after the other from what the earlier ones gave, and what they gave."""
