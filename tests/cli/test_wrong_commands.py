"""What a person gets wrong ends with the place and the remedy."""

from pathlib import Path
from typing import Any

import pytest

from cephfit.cli.place import _lying
from cephfit.configuration import Configuration
from cephfit.errors import HostError, InputError
from cephfit.sweep.declaration.file import bundled_sweep, read_sweep
from cephfit.sweep.guest import image, programs
from cephfit.sweep.journal import Journal
from cephfit.sweep.surroundings import Surroundings
from cephfit.sweep.targets.foreign import ClusterChoice, _restarts
from cephfit.sweep.targets.only_pool import OnlyPool
from cephfit.sweep.targets.whole_cluster import WholeCluster


class OnePool:
    """Monitors of a cluster whose only pool is rbd."""

    def command(self, prefix: str, **arguments: Any) -> Any:
        assert prefix == "osd lspools"
        return [{"poolnum": 1, "poolname": "rbd"}]


def test_a_dry_run_within_a_pool_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """Not only with --apply, hours after somebody made a plan of the dry run."""
    changes = OnlyPool("bench", OnePool(), Journal(tmp_path / "journal"), None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no pool bench") as caught:
        changes.preview(read_sweep(bundled_sweep("quick")), [Configuration("A")])
    assert "ceph osd pool create bench" in str(caught.value)


def test_a_dry_run_with_a_crush_rule_that_is_not_there_is_refused(tmp_path: Path) -> None:
    class OneRule:
        def command(self, prefix: str, **arguments: Any) -> Any:
            return ["replicated_rule"] if prefix == "osd crush rule ls" else []

    nothing: Any = None
    admin: Any = OneRule()
    around = Surroundings(nothing, pool_defaults={"crush_rule": "sdd"})
    journal = Journal(tmp_path / "journal")
    changes = WholeCluster(admin, nothing, journal, health=nothing, surroundings=around, progress=nothing)
    with pytest.raises(InputError, match="--crush-rule: this cluster has no CRUSH rule sdd") as caught:
        changes.preview(read_sweep(bundled_sweep("quick")), [Configuration("A")])
    assert "there are replicated_rule" in str(caught.value)


@pytest.mark.parametrize("what", ["missing", "folder", "plain file"])
def test_a_program_that_cannot_restart_osds_is_refused_beforehand(tmp_path: Path, what: str) -> None:
    program = tmp_path / "restart-osd"
    if what == "folder":
        program.mkdir()
    elif what == "plain file":
        program.write_text("#!/bin/sh\n")
    choice = ClusterChoice(conf=tmp_path / "ceph.conf", restarts=str(program))
    with pytest.raises(InputError, match="no program that can be run") as caught:
        _restarts(choice, None, None, None, None)  # type: ignore[arg-type]
    assert f"--restarts {program}" in str(caught.value)


def test_place_names_the_configurations_that_there_are() -> None:
    with pytest.raises(InputError, match="no pool of a configuration 'Z'") as caught:
        _lying("Z=hdd:2", {"A", "ssd"})
    assert "there are A, ssd" in str(caught.value)


def test_an_image_goes_to_no_folder_below_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "require_all", lambda: None)  # the programs are not what is tried here
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match="the folder cannot be made"):
        image.build(tmp_path / "file" / "image")
