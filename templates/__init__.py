"""Jinja2 templates: ceph.conf, CRUSH map parts, report pages. Data only; read with ``importlib.resources``."""
