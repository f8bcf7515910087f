"""Many settings at once: designs that become configurations, and what their samples say of each setting."""
