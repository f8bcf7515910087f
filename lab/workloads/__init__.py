"""Real workloads that verify predictions: pgbench, any program, and those that come with cephfit."""

import os
from pathlib import Path

_FOLDER = Path(__file__).parent / "programs"


def ready_programs() -> dict[str, Path]:
    """Return the programs of docs/workloads.md by name, sorted."""
    found = {path.name: path for path in sorted(_FOLDER.iterdir()) if not path.suffix and path.is_file()}
    return {name: path for name, path in found.items() if os.access(path, os.X_OK)}
