"""A machine's journal of the resources that runs created in a cloud: their project and their run."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from cephfit.cloud import cloud_cleanup
from cephfit.cloud.cloud_cleanup import CreatedResources
from cephfit.core.errors import ClusterError
from cephfit.core.journal import Journal
from cephfit.core.protocols import NullProgress


class Recording:
    """The stacks of a run, of which it is noted what is done to them."""

    def __init__(self, run_id: str, done: list[tuple[str, str, str]]) -> None:
        self._run_id, self._done = run_id, done

    def ask_deletion(self, name: str) -> None:
        self._done.append(("asked", self._run_id, name))

    def delete(self, name: str) -> None:
        self._done.append(("deleted", self._run_id, name))


def in_project(project: str, file: Path) -> CreatedResources:
    """What there is, seen by a cloud's name that means this project."""
    config = SimpleNamespace(auth={"auth_url": f"https://{project}.example:5000/v3"})
    cloud: Any = SimpleNamespace(current_project_id=project, config=config)
    return CreatedResources(cloud, Journal(file), NullProgress(), name="openstack:work")


def stacks_of(done: list[tuple[str, str, str]]) -> Callable[[str], Any]:
    return lambda run_id: Recording(run_id, done)


def test_what_was_made_in_another_project_is_not_taken_for_gone(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    in_project("one", file).note_stack("cephfit-r-hdd-1", "r")
    in_project("one", file).require_here()
    with pytest.raises(ClusterError) as error:
        in_project("two", file).require_here()
    assert error.value.what == (
        "stack cephfit-r-hdd-1 was created in project one of https://one.example:5000/v3, and this cloud's name "
        "now means project two of https://two.example:5000/v3"
    )
    assert "cephfit cloud clean r --cloud NAME" in (error.value.remedy or "")
    assert str(file) in (error.value.remedy or "")
    assert in_project("two", file).words() == ("stack cephfit-r-hdd-1",), "it stays in the journal"


def test_every_run_of_a_journal_of_another_project_is_named(tmp_path: Path) -> None:
    """Who deletes the journal after the first of them forgets the others."""
    file = tmp_path / "journal.jsonl"
    in_project("one", file).note_stack("cephfit-r-hdd-1", "r")
    in_project("one", file).note_stack("cephfit-r-ssd-1", "r")
    in_project("one", file).note_type("cephfit-s-hdd-qos", "s")
    with pytest.raises(ClusterError) as error:
        in_project("two", file).require_here()
    remedy = error.value.remedy or ""
    assert "run `cephfit restore`" in remedy
    assert remedy.count("cephfit cloud clean r --cloud NAME` in project one") == 1
    assert remedy.count("cephfit cloud clean s --cloud NAME` in project one") == 1
    assert remedy.endswith(f"only when each of these has deleted all it found, delete {file}")


def test_a_journal_of_several_projects_is_worked_off_run_by_run(tmp_path: Path) -> None:
    """No project is the right one for `cephfit restore`, so that is not advised; what is here is named, too."""
    file = tmp_path / "journal.jsonl"
    Journal(file).note("stack", "cephfit-q-hdd-1", "q")  # as earlier versions noted it
    in_project("one", file).note_stack("cephfit-r-hdd-1", "r")
    in_project("two", file).note_stack("cephfit-s-hdd-1", "s")
    with pytest.raises(ClusterError) as error:
        in_project("two", file).require_here()
    remedy = error.value.remedy or ""
    assert "restore" not in remedy
    for run, project in (("q", "(not noted)"), ("r", "one"), ("s", "two")):
        assert f"`cephfit cloud clean {run} --cloud NAME` in project {project}" in remedy


def test_all_is_deleted_stacks_before_types_and_each_by_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "journal.jsonl"
    things = in_project("one", file)
    things.note_type("cephfit-r-hdd-qos", "r")
    things.note_stack("cephfit-r-hdd-1", "r")
    things.note_stack("cephfit-s-hdd-1", "s")
    done: list[tuple[str, str, str]] = []
    monkeypatch.setattr(
        cloud_cleanup.volume_types,
        "delete",
        lambda _, run_id, name: done.append(("type deleted", run_id, name)),
    )
    in_project("one", file).delete(stacks_of(done))
    assert done == [
        ("asked", "r", "cephfit-r-hdd-1"),
        ("asked", "s", "cephfit-s-hdd-1"),
        ("deleted", "r", "cephfit-r-hdd-1"),
        ("deleted", "s", "cephfit-s-hdd-1"),
        ("type deleted", "r", "cephfit-r-hdd-qos"),
    ]
    assert not file.exists()


def test_a_journal_of_an_earlier_version_is_still_worked_off(tmp_path: Path) -> None:
    """It has the run's id alone, and no project that could be another one."""
    file = tmp_path / "journal.jsonl"
    Journal(file).note("stack", "cephfit-r-hdd-1", "r")
    things = in_project("two", file)
    things.require_here()
    done: list[tuple[str, str, str]] = []
    things.delete(stacks_of(done))
    assert done == [("asked", "r", "cephfit-r-hdd-1"), ("deleted", "r", "cephfit-r-hdd-1")]
    assert not file.exists()
