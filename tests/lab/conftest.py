"""Shared by the lab's tests."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cephfit.lab.disks import loops_of
from cephfit.lab.mounts import mounts
from cephfit.lab.processes import command_line, is_marked, mentions


@pytest.fixture
def cephfit() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command people run."""

    def run(
        *arguments: str, prefix: tuple[str, ...] = (), seconds: float = 180
    ) -> subprocess.CompletedProcess[str]:
        argv = [*prefix, sys.executable, "-m", "cephfit.cli.main", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)

    return run


@pytest.fixture
def traces_of() -> Callable[[Path], list[str]]:
    """All that this machine still has of a lab's folder, in words; asks the kernel, not cephfit's records."""

    def find(folder: Path) -> list[str]:
        processes = [
            f"process {entry.name}"
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit()
            and int(entry.name) != os.getpid()
            and (mentions(command_line(int(entry.name)), folder) or is_marked(int(entry.name), folder))
        ]
        left = [f"mount {m.point}" for m in mounts() if folder in (m.point, *m.point.parents)]
        files = [f"file {folder}"] if folder.exists() else []
        return processes + left + files + [f"loop {device}" for device in loops_of(folder)]

    return find
