"""Devices of this machine that may be overwritten, on loop devices."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cephfit.core.errors import InputError
from cephfit.core.units import MIB
from cephfit.measure.block_device import require_empty

pytestmark = pytest.mark.root


def test_an_unused_device_without_content_is_empty(loop_device: Callable[[int], Path]) -> None:
    require_empty(loop_device(16 * MIB), where="here")


def test_a_mounted_device_is_refused_although_its_signature_is_gone(
    loop_device: Callable[[int], Path], tmp_path: Path
) -> None:
    device = loop_device(16 * MIB)
    subprocess.run(("mkfs.ext4", "-q", str(device)), check=True)
    subprocess.run(("mount", str(device), str(tmp_path)), check=True)
    try:
        subprocess.run(("wipefs", "--all", "--force", "--quiet", str(device)), check=True)
        with pytest.raises(InputError, match="busy") as caught:
            require_empty(device, where="target local")
    finally:
        subprocess.run(("umount", str(tmp_path)), check=True)
    assert caught.value.where == "target local"
    assert "unmounted" in caught.value.remedy


def test_a_device_that_cannot_be_read_is_not_taken_for_empty(tmp_path: Path) -> None:
    """blkid's exit code is the same for a device without content and for one that it cannot open."""
    with pytest.raises(InputError, match="cannot be seen"):
        require_empty(tmp_path / "gone", where="here")
