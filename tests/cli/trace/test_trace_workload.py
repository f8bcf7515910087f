"""`cephfit trace workload` removes guests at the end, and changes nothing on other targets."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from cephfit.cli.main import cephfit
from cephfit.cli.options import workload_choice
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Applied, Client, Health
from cephfit.core.values.sample import State, WorkloadSample
from cephfit.operations.measuring import target_choice
from cephfit.sweep import verification
from cephfit.traces.capturing import capture
from cephfit.traces.capturing.capture import CaptureReport


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
        ("sysbench", [], "neither pgbench, nor program:FILE"),
        ("program:", [], "neither pgbench, nor program:FILE"),
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


class Disks(Real):
    """A target with files for disks."""

    name = "disks"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.n_clients = 0

    def apply(self, configuration: Any, *, n_clients: int, volume_nbytes: int, fill: bool = True) -> Applied:
        self.n_clients = n_clients
        for i in range(n_clients):
            (self.folder / f"disk{i}").write_bytes(bytes(volume_nbytes))
        return Applied(configuration.name, True, (), {})

    def clients(self) -> list[Client]:
        return [Client(f"c{i}", {}, 1 << 20, self.folder / f"disk{i}") for i in range(self.n_clients)]

    def health(self) -> Health:
        return Health(True)

    def drop_caches(self) -> None:
        pass


@pytest.mark.parametrize("as_json", [False, True])
def test_several_clients_run_at_once_and_each_is_traced(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "copy.sh"
    # A run waits until three of them run: one after the other would never end.
    program.write_text(
        "#!/bin/sh\ncase $1 in\n"
        """describe) echo '{"name": "copy", "metric": "copies/s", "volume": "1M"}';;\n"""
        f"run) touch {tmp_path}/$CEPHFIT_CLIENT.runs; for t in $(seq 100); do "
        f"[ $(ls {tmp_path}/*.runs | wc -l) = 3 ] && break; sleep 0.1; done; "
        'echo "1${CEPHFIT_CLIENT#c}";;\nesac\n'
    )
    program.chmod(0o755)
    traced: list[tuple[Path, Path]] = []

    @contextmanager
    def capturing(device: Path, place: Path) -> Iterator[CaptureReport]:
        report = CaptureReport(str(device), "blktrace", files=(f"{place}/{device.name}.blktrace.0",), seconds=1.0)
        traced.append((device, place))
        yield report

    monkeypatch.setattr(target_choice, "open_target", lambda *_, **__: Disks(tmp_path))
    monkeypatch.setattr(capture, "capturing", capturing)
    argv = ["trace", "workload", "--target", "lab", "-o", f"{tmp_path}/traces/", "--clients", "3"]
    argv += ["--workload", f"program:{program}", "--seconds", "1"]
    ended = CliRunner().invoke(cephfit, [*argv, *(["--json"] if as_json else [])], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    assert sorted(device.name for device, _ in traced) == ["disk0", "disk1", "disk2"]
    assert {place for _, place in traced} == {tmp_path / "traces"}
    if as_json:
        document = json.loads(ended.stdout[ended.stdout.index("{") :])
        assert (document["value"], document["workload"]) == (33.0, "copy x 3")
        assert document["clients"] == {"c0": 10.0, "c1": 11.0, "c2": 12.0}
        assert len(document["traces"]) == 3
    else:
        assert "copy x 3: 33.0 copies/s together" in ended.output
        assert "each client: 10.0 to 12.0, median 11.0; fairness (Jain) 0.995" in ended.output
