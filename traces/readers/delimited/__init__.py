"""Separated text with one access per line."""
