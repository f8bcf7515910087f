"""`cephfit trace workload` removes guests at the end, and changes nothing on other targets."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from cephfit.cli.main import cephfit
from cephfit.cli.options import workload_choice
from cephfit.core.errors import ClusterError
from cephfit.core.values.sample import State, WorkloadSample
from cephfit.operations import target_choice
from cephfit.sweep import verification


class Target:
    """A target that marks what it creates with the run's id."""

    name = "marked"

    def __init__(self) -> None:
        self.done: list[str] = []

    def begin(self, run_id: str) -> None:
        self.done.append("begin")

    def reset(self) -> None:
        self.done.append("reset")

    def close(self) -> None:
        self.done.append("close")


class Cloud(Target):
    """The same with guests."""

    def run_guest_jobs(self, clients: Any, scripts: Any, *, seconds: float) -> Any:
        raise AssertionError("no guest is asked here")


class Real(Target):
    """A target on which a workload can run."""

    def facts(self) -> dict[str, Any]:
        return {}


class RealCloud(Cloud):
    """The same with guests."""

    def facts(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("target", "done", "collects"),
    [(Target(), ["begin", "close"], False), (Cloud(), ["begin", "reset", "close"], True)],
)
def test_only_guests_are_removed_at_the_end(
    target: Target, done: list[str], collects: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    heard: list[bool] = []

    def trial_of(*_: Any, collect: Any, **__: Any) -> Any:
        heard.append(collect is not None)
        return SimpleNamespace(workload=SimpleNamespace(name="pgbench"))

    sample = WorkloadSample("A", 0, 0, State.FAILED, "tps", None, 1, 2, reason="it was not run")
    monkeypatch.setattr(target_choice, "open_target", lambda *_, **__: target)
    monkeypatch.setattr(workload_choice, "trial_of", trial_of)
    monkeypatch.setattr(verification, "run_once", lambda *_, **__: sample)
    ended = CliRunner().invoke(cephfit, ["trace", "workload", "--target", "lab", "-o", str(tmp_path / "t")])
    assert isinstance(ended.exception, ClusterError), ended.exception
    assert (target.done, heard) == (done, [collects])


@pytest.mark.parametrize(
    ("workload", "more", "words"),
    [
        ("postmark", [], "neither pgbench nor program:FILE"),
        ("program:", [], "neither pgbench nor program:FILE"),
        ("program:/nosuch", [], "this program does not exist"),
        ("program:/bin/true", ["--scale", "3"], "--scale is for pgbench only"),
    ],
)
def test_a_workload_that_cannot_be_run_is_refused(
    workload: str, more: list[str], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = Real()
    monkeypatch.setattr(target_choice, "open_target", lambda *_, **__: target)
    argv = ["trace", "workload", "--target", "lab", "-o", str(tmp_path / "t"), "--workload", workload, *more]
    ended = CliRunner().invoke(cephfit, argv)
    assert words in ended.output + str(ended.exception)
    assert ended.exit_code != 0


def test_a_program_does_not_run_in_guests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(target_choice, "open_target", lambda *_, **__: RealCloud())
    argv = ["trace", "workload", "--target", "openstack:lab", "-o", str(tmp_path / "t")]
    ended = CliRunner().invoke(cephfit, [*argv, "--workload", "program:/bin/true"])
    assert "not in guests" in str(ended.exception)
