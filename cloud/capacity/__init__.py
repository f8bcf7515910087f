"""Capacity of a cloud for a sweep: preflight, quotas, pools."""
