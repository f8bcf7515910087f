"""What `import cephfit` offers to notebooks and scripts; `cephfit/__init__.py` names the public part of it."""
