"""Validity of samples."""
