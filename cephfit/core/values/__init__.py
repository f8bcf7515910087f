"""The values that pass between rooms, frozen and validated."""
