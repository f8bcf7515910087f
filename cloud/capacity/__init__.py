"""Whether a cloud has room for a sweep: preflight, quotas, pools."""
