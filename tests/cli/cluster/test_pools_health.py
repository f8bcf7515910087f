"""`cephfit pools apply` and `remove` change nothing on an unhealthy cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cephfit.ceph.pools.declared_pools import PoolsPlan
from cephfit.cli.cluster import pools_command
from cephfit.core.protocols import Health
from cephfit.sweep.execution import preflight

FILE = "schema_version: 1\npools:\n  gold: {size: 3}\n"
ILL = Health(ok=False, reasons=("OSD_DOWN: 1 osds down", "3 PGs active+undersized"))
WELL = Health(ok=True)


class Cluster:
    """A target that goes through several health states, and its declared pools."""

    name = "ceph"

    def __init__(self, states: Sequence[Health]) -> None:
        self._states = list(states)
        self.done: list[str] = []

    def health(self) -> Health:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    def declared_pools(self) -> "Cluster":
        return self

    def apply(self, *_: Any, **__: Any) -> PoolsPlan:
        self.done.append("apply")
        return PoolsPlan((), None, (), ())

    def remove(self, *_: Any, **__: Any) -> tuple[str, ...]:
        self.done.append("remove")
        return ("pool gold is deleted",)

    def to_remove(self, *_: Any, **__: Any) -> tuple[str, ...]:
        return ("pool gold would be deleted",)

    def close(self) -> None:
        pass


def typed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, file: Path, *words: str, text: str = FILE) -> Any:
    file.write_text(text)
    monkeypatch.setattr(pools_command, "_open", lambda *_, **__: cluster)
    monkeypatch.setattr(preflight, "_SETTLING_SECONDS", 0.0)
    return CliRunner().invoke(pools_command.command, [words[0], str(file), "--target", "ceph", *words[1:]])


@pytest.mark.parametrize("word", ["apply", "remove"])
def test_nothing_is_changed_while_the_cluster_is_unhealthy(
    word: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = Cluster([ILL])
    result = typed(cluster, monkeypatch, tmp_path / "f", word, "--apply")
    assert "OSD_DOWN: 1 osds down; 3 PGs active+undersized" in str(result.exception)
    assert cluster.done == []
    assert typed(cluster, monkeypatch, tmp_path / "f", word, "--apply", "--although-unhealthy").exit_code == 0
    assert cluster.done == [word]


def test_a_dry_run_of_remove_works_in_any_health(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = typed(Cluster([ILL]), monkeypatch, tmp_path / "f", "remove")
    assert "pool gold would be deleted" in result.output


def test_pools_of_older_versions_with_reserved_names_can_be_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster, text = Cluster([WELL]), FILE.replace("gold", "cephfit-gold")
    removed = typed(cluster, monkeypatch, tmp_path / "f", "remove", "--apply", text=text)
    assert (removed.output, cluster.done) == ("pool gold is deleted\n", ["remove"])
    refused = typed(cluster, monkeypatch, tmp_path / "f", "apply", "--apply", text=text).exception
    assert "'cephfit-gold' cannot be the name of a permanent pool" in str(refused)
    assert "`cephfit pools remove` deletes an existing pool of this name" in str(refused)
    monkeypatch.setattr(Cluster, "to_remove", lambda *_: ())
    listed = typed(cluster, monkeypatch, tmp_path / "f", "remove", text=text).output
    assert "created or changed by `cephfit pools apply`\ncephfit-* are the pools of sweeps" in listed


def test_temporary_health_problems_are_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster = Cluster([ILL, WELL])
    preflight.await_healthy(cluster, seconds=30)  # type: ignore[arg-type]
    assert typed(cluster, monkeypatch, tmp_path / "f", "apply", "--apply").exit_code == 0
