"""The journal keeps original values, also after a kill at any byte."""

import json
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.errors import StoreError
from cephfit.core.journal import Entry, Journal


def test_the_first_entry_of_a_place_is_the_original(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert journal.note("config", "osd osd_max_backfills", "8")
    assert not journal.note("config", "osd osd_max_backfills", "3")
    assert Journal(journal.path).entries() == (Entry("config", "osd osd_max_backfills", "8"),)


def test_what_was_absent_and_what_was_empty_differ(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.note("config", "absent", None)
    journal.note("config", "empty", "")
    assert [e.was for e in Journal(journal.path).entries()] == [None, ""]


def test_a_forgotten_place_can_be_recorded_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.note("restart", "0", None)
    journal.forget("restart", "0")
    assert Journal(journal.path).entries() == ()
    assert journal.note("restart", "0", None)


def test_the_file_is_deleted_only_when_nothing_is_left_to_undo(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.note("pool", "p", None)
    with pytest.raises(StoreError, match="1 changes"):
        journal.finish()
    journal.forget("pool", "p")
    journal.finish()
    assert not journal.path.exists()


@pytest.mark.parametrize("damaged", ["rubbish", '{"version": 1, "kind": "pool", "place": "q"}'])
def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "journal"
    path.write_text(f'{{"version": 1, "kind": "pool", "place": "p", "was": null}}\n{damaged}\n')
    with pytest.raises(StoreError, match=r"journal:2: this line of the journal is damaged"):
        Journal(path)


def test_reading_neither_repairs_nor_writes(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    torn = b'{"version": 1, "kind": "pool", "place": "p", "was": null}\n{"version": 1, "ki'
    path.write_bytes(torn)
    journal = Journal(path, read_only=True)
    assert journal.entries() == (Entry("pool", "p", None),)
    with pytest.raises(ValueError, match="reading only"):
        journal.note("pool", "q", None)
    assert path.read_bytes() == torn


def test_on_a_full_disk_no_partial_line_is_left(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.note("config", "osd a", "1")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + 20, hard))
    try:
        with pytest.raises(StoreError, match="cannot be written"):
            journal.note("config", "osd b", "2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert journal.get("config", "osd b") is None
    journal.note("config", "osd c", "3")
    assert [e.place for e in Journal(journal.path).entries()] == ["osd a", "osd c"]


@given(
    changes=st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.text())), min_size=1, max_size=8),
    data=st.data(),
)
def test_a_journal_cut_at_any_byte_holds_every_whole_line(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str | None]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "journal"
    journal = Journal(path)
    for place, was in changes:
        journal.note("config", place, was)
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    whole = [json.loads(line) for line in content[:cut].split(b"\n")[:-1]]
    again = Journal(path)
    assert [(e.place, e.was) for e in again.entries()] == [(line["place"], line["was"]) for line in whole]
    again.note("config", "after the crash", "x")
    assert Journal(path).entries() == again.entries()
