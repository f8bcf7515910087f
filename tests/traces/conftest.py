"""Real traces that others wrote, where the machine has them."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def samples() -> Path:
    """The folder of real samples, named by CEPHFIT_SAMPLES."""
    folder = os.environ.get("CEPHFIT_SAMPLES")
    if not folder:
        pytest.skip("CEPHFIT_SAMPLES does not name the folder of real trace samples")
    return Path(folder)
