"""`cephfit pools` on the real lab."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cluster_state import state_of

from cephfit.cli.cluster.pools_command import command
from cephfit.core.errors import ClusterError
from cephfit.lab.cluster import Lab

pytestmark = [pytest.mark.ceph, pytest.mark.root]

FILE = """\
schema_version: 1
accept_risk: [size]
pools:
  typed-ssd: {devices: {class: ssd}, size: 2, pg_num: 8}
"""


def pools(*arguments: str) -> Any:
    result = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    return json.loads(result.stdout)


def test_pools_are_planned_created_shown_and_removed(lab_cluster: Lab, tmp_path: Path) -> None:
    file, target = tmp_path / "pools.yaml", ("--target", f"lab:{lab_cluster.folder}")
    file.write_text(FILE)
    before = state_of(lab_cluster)
    planned = pools("plan", str(file), *target)
    assert planned["faults"] == []
    assert "step take default class ssd" in "\n".join(planned["crush"]["added_lines"])
    assert planned["crush"]["moved_by_the_map"]["pgs"] == 0
    assert pools("apply", str(file), *target) == planned, "without --apply it is the plan"
    assert state_of(lab_cluster) == before

    assert pools("apply", str(file), *target, "--apply")["pools"][0]["state"] == "new"
    (shown,) = [p for p in pools("show", *target) if p["name"] == "typed-ssd"]
    assert (shown["kind"], shown["rule"], shown["classes"]) == ("2 copies", "typed-ssd", {"ssd": 16})
    assert pools("plan", str(file), *target)["pools"][0]["values"] == {}

    assert pools("remove", str(file), *target)["removed"] is False
    assert pools("remove", str(file), *target, "--apply")["what"] == ["pool typed-ssd is deleted"]
    assert state_of(lab_cluster) == before


def test_refused_pools_are_reported_with_reasons(lab_cluster: Lab, tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text(FILE.replace("size: 2", "size: 3"))
    result = CliRunner().invoke(command, ["plan", str(file), "--target", f"lab:{lab_cluster.folder}"])
    assert isinstance(result.exception, ClusterError)
    assert "Refused: rule typed-ssd finds fewer than 3 OSDs for 4096 of 4096 inputs" in result.stdout


def test_the_example_is_a_file_of_pools() -> None:
    assert "volumes-tiered:" in CliRunner().invoke(command, ["example"]).stdout
