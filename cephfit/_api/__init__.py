"""The implementation of the public Python API; `cephfit/__init__.py` lists the public names."""
