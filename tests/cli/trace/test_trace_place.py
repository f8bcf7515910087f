"""Where a captured trace goes."""

from pathlib import Path

import pytest

from cephfit.cli.trace.trace_input import trace_place
from cephfit.core.errors import InputError


def test_a_slash_at_the_end_makes_a_folder(tmp_path: Path) -> None:
    with trace_place(f"{tmp_path}/new/trace/") as place:
        assert place.is_dir()
        (place / "sda.blktrace.0").touch()
    assert (place / "sda.blktrace.0").exists()


def test_a_folder_that_stays_empty_goes_again(tmp_path: Path) -> None:
    with pytest.raises(ValueError), trace_place(f"{tmp_path}/trace/"):
        raise ValueError("no such device")
    assert list(tmp_path.iterdir()) == []


def test_without_the_slash_it_is_the_base_name_of_the_files(tmp_path: Path) -> None:
    with trace_place(f"{tmp_path}/run") as place:
        assert place == tmp_path / "run"
    assert not place.exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be created"), trace_place(f"{tmp_path}/file/"):
        pass
