"""Empty loop devices of a test."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def loop_devices(folder: Path) -> Iterator[Callable[[int], Path]]:
    """Makes loop devices of a size, with their data in a folder, and takes them away again."""
    made: list[str] = []

    def make(nbytes: int) -> Path:
        backing = folder / f"disk{len(made)}.img"
        with backing.open("wb") as file:
            file.truncate(nbytes)
        argv = ("losetup", "--find", "--show", str(backing))
        found = subprocess.run(argv, capture_output=True, text=True, check=False)
        if found.returncode:
            pytest.skip(f"no loop device to be had: {found.stderr.strip()}")
        made.append(found.stdout.strip())
        return Path(made[-1])

    try:
        yield make
    finally:
        for device in made:
            subprocess.run(("losetup", "--detach", device), check=True)
