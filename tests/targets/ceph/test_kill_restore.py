"""SIGKILL at any moment of `apply`; `restore` from another process restores the exact original state."""

import json
import random
import subprocess
import sys

import pytest
from cluster_state import state_of
from kill_at_work import kill_at_work

from cephfit.lab.cluster import Lab

pytestmark = [pytest.mark.ceph, pytest.mark.root, pytest.mark.fio]

N_KILLS = 6

APPLY_FOR_EVER = """
import itertools, sys
from pathlib import Path
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_target import LabTarget

target = LabTarget(Lab.open(folder=Path(sys.argv[1])))
tried = [
    Configuration("runtime", (
        Setting(Partition.CEPH, "osd", "bluestore_prefer_deferred_size_hdd", 0),
        Setting(Partition.CEPH, "osd", "osd_max_backfills", 3),
        Setting(Partition.GREATER, "client_disk", "read_ahead_kb", 0),
        Setting(Partition.GREATER, "osd_disk", "nr_requests", 64),
        Setting(Partition.POOL, "pool", "pg_num", 16),
    )),
    Configuration("restart", (
        Setting(Partition.CEPH, "osd/class:ssd", "osd_op_num_shards", 3),
        Setting(Partition.POOL, "pool", "crush_rule", "hybrid"),
    )),
    Configuration("A"),
]
print("ready", flush=True)
for configuration in itertools.cycle(tried):
    applied = target.apply(configuration, n_clients=1, volume_nbytes=32 << 20)
    assert applied.ok, applied
"""


@pytest.mark.slow  # a kill between file and restart is in test_conf_files.py
def test_restore_undoes_everything_after_a_kill(lab_cluster: Lab) -> None:
    before = state_of(lab_cluster)
    dice = random.Random(2017)
    for _ in range(N_KILLS):
        kill_at_work(APPLY_FOR_EVER, lab_cluster.folder, after_seconds=dice.uniform(0.1, 6.0))
        restored = subprocess.run(
            [
                sys.executable,
                "-m",
                "cephfit.cli.main",
                "restore",
                "--json",
                "--target",
                f"lab:{lab_cluster.folder}",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert restored.returncode == 0, restored.stderr
        assert json.loads(restored.stdout)["healthy"]
        assert state_of(lab_cluster) == before
    left = [p.name for p in (lab_cluster.folder / "target").iterdir()]
    assert sorted(left) in (["lock", "sock"], ["exports", "lock", "sock"])
