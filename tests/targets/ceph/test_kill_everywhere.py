"""SIGKILL at a hundred random moments over apply, run and restore: cluster and store are right every time.

On the lab as such (OSDs restarted in parallel, block devices), and on its cluster as an existing cluster (OSD by
OSD with noout, a lock on the cluster, librbd). A kill hits the process only: its children continue.
"""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_state import state_of
from existing_cluster_lab import restart_program

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.core.values.sample import Sample, State
from cephfit.lab.cluster import Lab
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import read_sweep

pytestmark = [pytest.mark.ceph, pytest.mark.root, pytest.mark.fio, pytest.mark.slow, pytest.mark.timeout(7200)]

N_KILLS = 50
"""For each kind of target: a hundred in all."""
LONGEST_SECONDS = {"apply": 8.0, "run": 40.0, "restore": 6.0}
"""A run measures after some seconds, when volumes exist and are filled; a restore takes 3 to 10 s."""

REPEATS = 8

SWEEP = """
schema_version: 1
name: killed
description: options at run time and at start, a rule, an image setting
configurations:
  A: {{}}
  restart:
    ceph: {{"osd/class:ssd": {{osd_op_num_shards: 3}}}}
    pool: {{crush_rule: ssd}}
  runtime:
    ceph: {{osd: {{osd_max_backfills: 3, bluestore_prefer_deferred_size_hdd: 0}}}}
    image: {{stripe_unit: 64K, stripe_count: 2}}
measurement: {{sizes: [4K], patterns: [randread, randwrite], clients: 1, volume_size: 16M, repeats: {repeats},
  ramp_seconds: 0.2, run_seconds: 0.5, ioengine: {ioengine}, iodepth: 1, direct: true, cache: cold, seed: 7,
  max_attempts: 20}}
"""

APPLY_FOR_EVER = """
import itertools, sys
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.target_choice import open_target
from cephfit.sweep.declaration.sweep_file import read_sweep
from pathlib import Path

text, file, conf, restarts, rule = sys.argv[1:]
is_existing = text.startswith("ceph")
cluster = ClusterOptions(conf=Path(conf), restarts=restarts, crush_rule=rule, pg_num=16) if is_existing else None
sweep = read_sweep(Path(file))
target = open_target(
    text, for_change=True, ioengine=sweep.measurement.ioengine, cluster=cluster, leave=is_existing
)
for configuration in itertools.cycle(sweep.configurations):
    applied = target.apply(configuration, n_clients=1, volume_nbytes=16 << 20)
    assert applied.ok, applied
"""


class Scene:
    """One kind of target on one lab, and the commands on it."""

    def __init__(self, lab: Lab, kind: str, folder: Path) -> None:
        self.lab = lab
        self.sweep = folder / "killed.yaml"
        self.sweep.write_text(SWEEP.format(repeats=REPEATS, ioengine="rbd" if kind == "ceph" else "libaio"))
        self.store = folder / "results.sqlite"
        self.program = str(restart_program(lab, folder))
        self.target = "ceph:lab" if kind == "ceph" else f"lab:{lab.folder}"
        self._more: list[str] = []
        if kind == "ceph":
            self._more = ["--conf", str(lab.conf), "--apply", "--restarts", self.program]
            self._more += ["--crush-rule", "hdd", "--pg-num", "16"]

    def command(self, verb: str) -> list[str]:
        if verb == "apply":
            words = [self.target, str(self.sweep), str(self.lab.conf), self.program, "hdd"]
            return [sys.executable, "-c", APPLY_FOR_EVER, *words]
        cephfit = [sys.executable, "-m", "cephfit.cli.main"]
        run = ["sweep", "run", str(self.sweep), "--store", str(self.store)]
        words = run if verb == "run" else ["restore"]
        return [*cephfit, *words, "--json", "--target", self.target, *self._more]

    def state(self) -> dict[str, Any]:
        """Return the state of the lab, and what cephfit has on an existing cluster during its work."""
        admin = RadosAdmin(self.lab.conf)
        try:
            flags = {o["osd"]: o["state"] for o in admin.command("osd dump")["osds"]}
            locks = admin.command("config-key dump", key="cephfit/")
        finally:
            admin.close()
        return {**state_of(self.lab), "flags": flags, "locks": locks}

    def samples(self) -> list[Sample]:
        if not self.store.exists():
            return []
        with Store.open(self.store) as store:
            runs = store.runs()
            assert len(runs) <= 1, "a killed run continues instead of beginning again"
            return store.samples(runs[0].run_id) if runs else []

    def is_finished(self) -> bool:
        if not self.samples():
            return False
        with Store.open(self.store) as store:
            return store.run().finished

    def restore(self) -> dict[str, Any]:
        done = subprocess.run(self.command("restore"), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document


@pytest.fixture(params=["lab", "ceph"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    lab = Lab.up(f"kills-{request.param}-{os.getpid()}", folder=tmp_path / "lab")
    try:
        yield Scene(lab, request.param, tmp_path)
    finally:
        lab.down()


def kill_in_the_middle(argv: list[str], seconds: float) -> str:
    """Start a command and kill it after some seconds; return ``killed``, or ``ended`` if it ended before."""
    victim = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(seconds)
    finally:  # also after an interrupt of the tests: the lab of a running command cannot be removed
        victim.send_signal(signal.SIGKILL)
    _, errors = victim.communicate()
    if victim.returncode == -signal.SIGKILL:
        return "killed"
    assert victim.returncode == 0, errors
    return "ended"


def assert_whole(scene: Scene) -> None:
    """Check that every sample of the plan is in the store once."""
    samples = scene.samples()
    ok = Counter((s.key.configuration, str(s.key.cell), s.key.repeat) for s in samples if s.state is State.OK)
    cells = [str(cell) for cell in read_sweep(scene.sweep).measurement.cells]
    assert ok == Counter(itertools.product(("A", "restart", "runtime"), cells, range(REPEATS)))


def test_cluster_and_store_are_right_after_every_kill(scene: Scene) -> None:
    before = scene.state()
    dice = random.Random(2017)
    kills: Counter[str] = Counter()
    kept: list[Sample] = []
    while kills.total() < N_KILLS:
        verb = ("apply", "run", "restore")[kills.total() % 3]
        if verb == "restore":  # of something that is there to be undone
            kill_in_the_middle(scene.command("apply"), dice.uniform(4.0, 10.0))
        if kill_in_the_middle(scene.command(verb), dice.uniform(0.3, LONGEST_SECONDS[verb])) == "killed":
            kills[verb] += 1
        samples = scene.samples()
        assert samples[: len(kept)] == kept, "what was stored stays as it was"
        assert max(Counter(s.key for s in samples).values(), default=1) == 1, "no sample twice"
        kept = samples
        if verb != "run" or dice.random() < 0.5:  # else the next one meets what this one left
            restored = scene.restore()
            assert restored["healthy"], restored["reasons"]
            assert scene.state() == before
        print(f"{time.strftime('%T')} {dict(kills)}, {len(kept)} samples", file=sys.stderr, flush=True)
        if scene.is_finished():
            assert_whole(scene)
            scene.store, kept = scene.store.with_suffix(f".{kills.total()}"), []

    done = subprocess.run(scene.command("run"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert scene.samples()[: len(kept)] == kept
    assert_whole(scene)
    assert scene.state() == before
