"""`cephfit params` against the options of a real cluster."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cephfit.cli.cluster.params_command import command
from cephfit.core.errors import InputError
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_target import LabTarget
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.preflight import unsupported_by

pytestmark = [pytest.mark.root, pytest.mark.ceph]

Params = Callable[..., Any]


@pytest.fixture
def params(lab_cluster: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Params:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    def run(*arguments: str, target: bool = True) -> Any:
        source = ["--target", f"lab:{lab_cluster.folder}"] if target else []
        result = CliRunner().invoke(command, [*arguments, *source, "--json"], catch_exceptions=False)
        return json.loads(result.output)

    return run


def test_the_tree_has_every_option_once(params: Params):
    parameters = params("tree")["parameters"]
    names = [p["name"] for p in parameters]
    assert len(names) == len(set(names)) > 1500
    shards = next(p for p in parameters if p["name"] == "osd_op_num_shards")
    assert (shards["component"], shards["category"], shards["takes_effect"]) == ("osd", "op", "restart")
    # Ceph's list omits the log levels.
    assert "debug_osd" in names


def test_queried_options_are_stored_for_use_without_a_cluster(params: Params):
    version = params("show", "rbd_cache")["ceph_version"]
    kept = params("show", "rbd_cache", "--release", version, target=False)
    assert kept["type"] == "bool"
    assert kept["readers"] == ["rbd"]


def test_an_option_of_old_releases_is_shown_with_its_history(params: Params):
    shown = params("show", "osd_op_threads")
    assert shown["releases"] == {"first": "dumpling", "last": "jewel"}
    assert "Luminous (12.2) does not have it" in shown["missing"]


def test_an_invalid_option_value_in_a_sweep_is_refused_with_its_line(lab_cluster: Lab):
    text = """
schema_version: 1
name: wrong
configurations:
  shards:
    ceph:
      osd: {bluestore_csum_type: crc99}
measurement: {clients: 1, volume_size: 64M, repeats: 1, run_seconds: 1, seed: 1}
"""
    target = LabTarget(lab_cluster, for_change=False)
    try:
        with pytest.raises(InputError, match="bluestore_csum_type must be one of none, crc32c") as refused:
            unsupported_by(target, parse_sweep(text, file="wrong.yaml"))
    finally:
        target.close()
    assert "line 7" in str(refused.value)
