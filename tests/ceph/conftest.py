"""The lab as a target, left as it was found by every test."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cephfit.lab.cluster import Lab
from cephfit.lab.target import LabTarget

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "sweep"))  # a real sshd


@pytest.fixture
def target(lab_cluster: Lab) -> Iterator[LabTarget]:
    target = LabTarget(lab_cluster)
    try:
        yield target
        target.reset()
    finally:
        target.close()  # a lock that stays would fail every test after the one that failed
