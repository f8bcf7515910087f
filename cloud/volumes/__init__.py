"""Cinder volumes, their types and their QoS."""
