"""QoS that a sweep declares, on the lab's OpenStack: its caps are met, and nothing of it is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from live_cloud import MARKS, cephfit, everything, target_text, until
from openstack.connection import Connection

from cephfit.cloud.cloud_cleanup import clean
from cephfit.cloud.owned_resources import owned, runs
from cephfit.cloud.volumes import volume_types
from cephfit.cloud.volumes.volume_types import Qos
from cephfit.core.protocols import NullProgress
from cephfit.core.values.sample import State
from cephfit.results.store.sample_store import Store

pytestmark = [*MARKS, pytest.mark.timeout(900)]

MOST_IOPS = 60
CAPPED = f"""
schema_version: 1
name: capped
configurations:
  capped: {{volume: {{type: hdd, qos: {{total_iops_sec: {MOST_IOPS}}}}}}}
measurement: {{sizes: [4K], patterns: [randread], clients: 1, volume_size: 32M, repeats: 1, ramp_seconds: 0.5,
  run_seconds: 6, iodepth: 4, max_attempts: 5, cache: warm, seed: 10}}
"""


def types_and_specs(cloud: Connection) -> tuple[set[str], set[str]]:
    types = {str(one.name) for one in volume_types.volume_types(cloud)}
    return types, {spec.name for spec in volume_types.qos_specs(cloud)}


@pytest.fixture
def somebodys(cloud_admin: Connection) -> Iterator[str]:
    """A volume type with QoS of another run, whose id begins as those of the tests do."""
    run_id, name = "capped-2", "cephfit-capped-2-hdd-qos-12345678"
    volume_types.ensure(cloud_admin, run_id, name, "hdd", Qos(name, "front-end", {"total_iops_sec": "9"}))
    yield name
    assert [name in names for names in types_and_specs(cloud_admin)] == [True, True], "others' things stay"
    volume_types.delete(cloud_admin, run_id, name)


@pytest.mark.takes(seconds=120)
def test_a_declared_cap_is_what_is_measured_and_goes_with_the_run(
    cloud_admin: Connection, somebodys: str, tmp_path: Path
) -> None:
    before, types_before = everything(cloud_admin), types_and_specs(cloud_admin)
    file, store = tmp_path / "capped.yaml", tmp_path / "capped.sqlite"
    file.write_text(CAPPED)
    run = cephfit("sweep", "run", str(file), "--target", target_text(cloud_admin), "--store", str(store))
    assert run.returncode == 0, run.stderr
    assert f"volumes of type hdd do at most {MOST_IOPS} I/Os per second" in run.stderr
    with Store.open(str(store)) as opened:
        (done,) = opened.runs()
        good = [sample for sample in opened.samples(done.run_id) if sample.state is State.OK]
        applied = {a.configuration: a for _, a in opened.applied(done.run_id)}
    iops = {s.key.configuration: s.metrics.iops for s in good if s.metrics is not None}
    assert 0.9 * MOST_IOPS < iops["capped"] < 1.05 * MOST_IOPS
    assert iops["A"] > 2 * MOST_IOPS
    assert applied["capped"].ok
    key = f"pool/volume/qos.total_iops_sec = {MOST_IOPS}"
    assert applied["capped"].read_back[key] == {"cinder": str(MOST_IOPS)}
    assert applied["A"].read_back["QoS of volume type hdd"] == {"cinder": None}, "the cloud's type is untouched"
    until(lambda: everything(cloud_admin) == before)
    assert types_and_specs(cloud_admin) == types_before


@pytest.mark.takes(seconds=40)
@pytest.mark.parametrize("by", ["restore", "clean"])
def test_a_killed_run_leaves_a_type_and_a_spec_that_are_found_and_deleted(
    cloud_admin: Connection, somebodys: str, tmp_path: Path, by: str
) -> None:
    before, types_before = everything(cloud_admin), types_and_specs(cloud_admin)
    file = tmp_path / "capped.yaml"
    file.write_text(CAPPED)
    argv = [sys.executable, "-m", "cephfit.cli.main", "sweep", "run", str(file)]
    argv += ["--target", target_text(cloud_admin), "--store", str(tmp_path / "capped.sqlite")]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL, env={**os.environ}) as sweep:
        # The order of configurations is shuffled by the seed: the capped one is first.
        until(
            lambda: any(v.volume_type.startswith("cephfit-capped-") for v in cloud_admin.block_storage.volumes())
        )
        sweep.send_signal(signal.SIGKILL)
    (run_id,) = (run_id for run_id in runs(cloud_admin) if run_id not in ("capped-2",))
    assert {"volume type", "QoS spec"} < {thing.kind for thing in owned(cloud_admin, run_id)}
    if by == "clean":
        cleaned = cephfit("cloud", "clean", run_id, "--cloud", str(cloud_admin.config.name))
        assert cleaned.returncode == 0, cleaned.stderr
    restored = cephfit("restore", "--target", f"openstack:{cloud_admin.config.name}")
    assert restored.returncode == 0, restored.stderr
    until(lambda: everything(cloud_admin) == before)
    assert types_and_specs(cloud_admin) == types_before


@pytest.mark.cloud_whole
@pytest.mark.takes(seconds=80)
def test_an_ordinary_user_gets_the_default_alone_and_the_reason(cloud_user: Connection, tmp_path: Path) -> None:
    file, store = tmp_path / "capped.yaml", tmp_path / "capped.sqlite"
    file.write_text(CAPPED)
    run = cephfit("sweep", "run", str(file), "--target", target_text(cloud_user), "--store", str(store))
    assert run.returncode == 0, run.stderr
    with Store.open(str(store)) as opened:
        (done,) = opened.runs()
        states = {s.key.configuration: (s.state, s.reason) for s in opened.samples(done.run_id)}
    assert states["A"][0] is State.OK
    assert states["capped"] == (
        State.SKIPPED,
        "QoS is set by the cloud's administrators, and this user is not one",
    )
    clean(cloud_user, done.run_id, NullProgress())
