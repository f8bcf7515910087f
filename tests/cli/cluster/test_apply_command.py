"""`cephfit apply` without a cluster: commands, and input that it refuses."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cephfit.ceph.delivery.shell_commands import parts_of
from cephfit.core.errors import InputError
from cephfit.core.protocols import Health
from cephfit.core.values.sample import CLUSTER, Run
from cephfit.operations.recommended import Recommended, of_sweep, require_same_cluster
from cephfit.targets.ceph.permanent_configuration import problems

Cephfit = Callable[..., subprocess.CompletedProcess[str]]


def test_without_a_target_it_prints_the_commands_and_their_undo(cephfit: Cephfit) -> None:
    shown = cephfit("apply", "no-deferred", "--sweep", "quick")
    assert shown.returncode == 0, shown.stderr
    assert "  ceph config set osd bluestore_prefer_deferred_size_hdd 0\n" in shown.stdout
    assert shown.stdout.endswith("To undo it:\n  ceph config rm osd bluestore_prefer_deferred_size_hdd\n")
    commands = json.loads(cephfit("apply", "ssd", "--sweep", "quick", "--pool", "vms", "--json").stdout)[
        "commands"
    ]
    assert [c["do"] for c in commands] == ["ceph osd pool set vms crush_rule ssd"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-defered", "--sweep", "quick"), "did you mean 'no-deferred'?"),
        (("A", "--sweep", "quick"), "A has no settings"),
        (("ssd",), "either --sweep or --baselines"),
        (("ssd", "--sweep", "quick", "--run", "x"), "--run selects a run"),
        (("ssd", "--sweep", "quick", "--apply"), "name the cluster with --target"),
        (("ssd", "--sweep", "quick", "--target", "sim"), "a simulation has no settings that stay"),
        (("ssd", "--sweep", "quick", "--target", "local:/tmp/x"), "no configuration can be applied here"),
        (("ssd", "--baselines", "rates.csv"), "no settings to apply"),
        (("ssd", "--sweep", "quick", "--target", "lab", "--watch", "-1"), "--watch"),
    ],
)
def test_wrong_input_is_named(
    cephfit: Cephfit, arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rates.csv").write_text("configuration,size,pattern,client,run,iops\n")
    refused = cephfit("apply", *arguments)
    assert refused.returncode == 2
    assert words in refused.stderr


def _measured(target: str, fsid: str) -> Recommended:
    found = of_sweep("ssd", "quick")
    run = Run("r", "quick", "", "", target, 1, 0, {CLUSTER: fsid})
    return Recommended(found.configuration, ("--baselines", "s", "--run", "r"), run)


def test_a_run_of_another_storage_is_refused_unless_accepted() -> None:
    assert require_same_cluster(_measured("ceph", "f1"), "f1", elsewhere=False, where="") == ""
    for target, what in (("simulated", "a simulation"), ("lab:default", "another storage, lab:default")):
        with pytest.raises(InputError, match=what):
            require_same_cluster(_measured(target, "f2"), "f1", elsewhere=False, where="")
        assert what in require_same_cluster(_measured(target, "f2"), "f1", elsewhere=True, where="")


def test_the_command_line_names_the_pool_only_where_one_is_needed() -> None:
    assert _measured("ceph", "f").apply_line().endswith("--target TARGET --pool POOL")
    found = of_sweep("no-deferred", "quick")
    assert not parts_of(found.configuration).pool.settings
    assert found.apply_line() == "cephfit apply no-deferred --sweep quick --target TARGET"


def test_scrubs_are_no_problem_and_moving_data_is_none_where_it_is_meant_to_move() -> None:
    scrubbing = Health(False, ("3 PGs active+clean+scrubbing+deep",))
    assert problems(scrubbing) == ()
    moving = Health(
        False,
        (
            "PG_DEGRADED: Degraded data redundancy: 9 objects degraded",
            "4 PGs active+remapped+backfilling",
            "4 PGs remapped",
            "9 objects misplaced",
        ),
    )
    assert problems(moving) == moving.reasons
    assert problems(moving, moving=True) == ()
    broken = Health(False, ("OSD_DOWN: 1 osds down", "2 PGs down", "4 PGs remapped"))
    assert problems(broken, moving=True) == ("OSD_DOWN: 1 osds down", "2 PGs down")
