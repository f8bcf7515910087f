"""Accesses counted: one pass, every histogram."""
