"""Volumes in a cloud: their types with QoS, attachments to several guests, and the types that images get."""
