"""Limits of disks with both versions of control groups, on files in the kernel's format."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cephfit.core.errors import HostError
from cephfit.lab.devices import throttle as lab_throttle
from cephfit.lab.devices.throttle import BlkioThrottle, IoMaxThrottle, Throttle
from cephfit.lab.lab_spec import DiskLimits

LIMITS = DiskLimits(iops=300, nbytes_per_s=100 << 20)


@pytest.fixture(params=["blkio", "io.max"])
def throttle(request: pytest.FixtureRequest, tmp_path: Path) -> Throttle:
    """Both control group versions, over files that keep the last line written, as the kernel's do per device."""
    if request.param == "blkio":
        for kind in ("read_iops", "write_iops", "read_bps", "write_bps"):
            (tmp_path / f"blkio.throttle.{kind}_device").write_text("")
        return BlkioThrottle(tmp_path)
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory")
    return IoMaxThrottle(tmp_path, Path("/labs/x"))


def test_a_limit_is_read_back_and_cleared(throttle: Throttle) -> None:
    throttle.set("7:3", LIMITS)
    assert throttle.limits("7:3") == LIMITS
    assert throttle.limits("7:30") is None
    throttle.clear("7:3")
    assert throttle.limits("7:3") is None


def test_blkio_writes_the_kernels_four_files(tmp_path: Path) -> None:
    BlkioThrottle(tmp_path).set("7:3", LIMITS)
    assert (tmp_path / "blkio.throttle.read_iops_device").read_text() == "7:3 300"
    assert (tmp_path / "blkio.throttle.write_bps_device").read_text() == "7:3 104857600"


def test_io_max_limits_a_separate_group_with_the_osds(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory")
    throttle = IoMaxThrottle(tmp_path, Path("/labs/x"))
    throttle.set("7:3", LIMITS)
    throttle.place([4711])
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+io"
    line = "7:3 rbps=104857600 wbps=104857600 riops=300 wiops=300"
    assert (throttle.group / "io.max").read_text() == line
    assert (throttle.group / "cgroup.procs").read_text() == "4711"


def emptied(group: Path) -> None:
    """A folder that can be removed although it has files, as a control group."""
    for file in group.iterdir():
        file.unlink()


def test_labs_of_one_name_have_separate_groups_and_the_last_one_disables_the_controller(
    tmp_path: Path,
) -> None:
    control = tmp_path / "cgroup.subtree_control"
    control.write_text("cpu memory")
    mine, hers = (IoMaxThrottle(tmp_path, Path(f"/home/{who}/labs/default")) for who in ("me", "her"))
    assert mine.group != hers.group
    mine.set("7:3", LIMITS)
    control.write_text("cpu io memory")  # as the kernel shows it
    hers.set("7:4", LIMITS)
    assert control.read_text() == "cpu io memory"
    for throttle, then in ((mine, "cpu io memory"), (hers, "-io")):
        emptied(throttle.group)
        throttle.remove()
        throttle.remove()
        assert control.read_text() == then
    assert [path.name for path in tmp_path.iterdir()] == ["cgroup.subtree_control"]


class LookedThrough(type(Path())):  # type: ignore[misc]
    """A folder that calls a function immediately after it is listed."""

    other: threading.Thread

    def glob(self, pattern: str) -> Iterator[Path]:
        found = list(super().glob(pattern))
        self.other.start()
        self.other.join(0.3)
        return iter(found)


def test_the_last_lab_does_not_disable_the_controller_of_a_new_one(
    tmp_path: Path,
) -> None:
    control = tmp_path / "cgroup.subtree_control"
    control.write_text("cpu memory")
    last, new = (IoMaxThrottle(LookedThrough(tmp_path), Path(f"/labs/{which}")) for which in ("last", "new"))
    LookedThrough.other = threading.Thread(target=new.set, args=("7:4", LIMITS))
    last.set("7:3", LIMITS)
    control.write_text("cpu io memory")
    emptied(last.group)
    last.remove()
    LookedThrough.other.join()
    assert control.read_text() == "+io", "the last word"
    assert new.limits("7:4") == LIMITS


def test_a_controller_that_others_had_on_stays_on(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("io")
    throttle = IoMaxThrottle(tmp_path, Path("/labs/x"))
    throttle.set("7:3", LIMITS)
    emptied(throttle.group)
    throttle.remove()
    assert (tmp_path / "cgroup.subtree_control").read_text() == "io"


def test_a_group_with_a_process_in_it_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_throttle, "_REMOVE_SECONDS", 0.1)
    (tmp_path / "cgroup.subtree_control").write_text("io")
    throttle = IoMaxThrottle(tmp_path, Path("/labs/x"))
    throttle.place([4711])
    with pytest.raises(HostError, match="control group cannot be removed") as caught:
        throttle.remove()
    assert "4711" in caught.value.remedy
