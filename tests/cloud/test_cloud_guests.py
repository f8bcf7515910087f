"""Guests that cannot be reached, guests' clocks, and a real workload in guests: on the lab's real OpenStack."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from live_cloud import MARKS, cephfit, everything, target_text, until
from openstack.connection import Connection

from cephfit.cloud.guests import guest_image
from cephfit.cloud.guests.image_upload import WITH_POSTGRESQL, upload
from cephfit.cloud.stacks import template_path
from cephfit.core.values.sample import Sample, State
from cephfit.lab.openstack import cloud_resources
from cephfit.results.store.sample_store import Store

pytestmark = [*MARKS, pytest.mark.postgres, pytest.mark.timeout(1800)]

SWEEP = """
schema_version: 1
name: guests
configurations:
  {configurations}
measurement:
  sizes: [4K]
  patterns: [randread]
  clients: {clients}
  volume_size: 16M
  repeats: 1
  ramp_seconds: 0.5
  run_seconds: {seconds}
  max_attempts: 5
  cache: warm
  seed: 7
"""
ONE_IMAGE = pytest.mark.xdist_group("image-with-postgresql")
"""Tests that share it run one after the other in one process."""
NOBODY_LISTENS = "8999"
SCALE = 1
WORKLOAD = {
    "flavor": "cephfit.small",
    "network": cloud_resources.NETWORK,
    "scale": SCALE,
    "seconds": 5,
    "warmup_seconds": 2,
    "clients": 4,
    "memory": 64,
    "wal": 64,
}


@pytest.fixture(scope="session")
def database_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("image")


@pytest.fixture
def database_image(cloud_admin: Connection, database_folder: Path) -> Iterator[str]:
    """The image with PostgreSQL, for all projects; taken away again unless it was there."""
    if next(cloud_admin.image.images(name=WITH_POSTGRESQL), None) is not None:
        yield WITH_POSTGRESQL
        return
    upload(cloud_admin, guest_image.build(database_folder, database=True), visibility="public")
    yield WITH_POSTGRESQL
    for part in list(cloud_admin.image.images()):
        if part.name.startswith(WITH_POSTGRESQL):
            cloud_admin.image.delete_image(part)


def sweep_file(folder: Path, *, configurations: str = "A: {}", clients: int = 1, seconds: int = 10) -> Path:
    file = folder / "guests.yaml"
    file.write_text(SWEEP.format(configurations=configurations, clients=clients, seconds=seconds))
    return file


def good_samples(store: Path) -> list[Sample]:
    with Store.open(str(store)) as opened:
        (run,) = opened.runs()
        return [sample for sample in opened.samples(run.run_id) if sample.state is State.OK]


@pytest.mark.takes(seconds=290)
def test_guests_that_answer_nowhere_signal_their_results_and_show_their_clocks(
    cloud_user: Connection, tmp_path: Path
) -> None:
    file, store = sweep_file(tmp_path, clients=2), tmp_path / "guests.sqlite"
    target = target_text(cloud_user, port=NOBODY_LISTENS)
    done = cephfit("sweep", "run", str(file), "--target", target, "--store", str(store))
    assert done.returncode == 0, done.stderr
    assert re.search(rf"nothing answers at [0-9.]+:{NOBODY_LISTENS}", done.stderr)
    samples = good_samples(store)
    assert {sample.key.client for sample in samples} == {"c0", "c1"}
    for sample in samples:
        assert sample.metrics is not None
        assert sample.metrics.iops > 0
        assert sample.evidence["results_by"] == "signal"
        together = sample.evidence["together"]
        assert set(together["clocks"]) == {"c0", "c1"}
        # Booted from the machine's own clock, in whole seconds.
        assert all(abs(clock["ahead_seconds"]) < 3 for clock in together["clocks"].values())
        assert together["start_skew_seconds"] <= 0.1 * 10
        assert "X-Auth-Token" not in json.dumps(sample.evidence)


@ONE_IMAGE
def test_a_stack_by_hand_runs_the_workload_and_has_its_result(
    cloud_user: Connection, own_run: str, database_image: str
) -> None:
    """As `openstack stack create -t heat/verification.yaml` does it."""
    heat = cloud_user.orchestration
    files = heat.read_env_and_templates(template_file=str(template_path("verification")))
    assert heat.post("/validate", json={"template": files["template"], "files": files["files"]}).status_code == 200
    parameters = {**WORKLOAD, "run_id": own_run, "volume_type": "ssd", "image": database_image}
    tags = f"cephfit-run={own_run}"
    heat.create_stack(name=f"cephfit-{own_run}", parameters=parameters, tags=tags, timeout_mins=25, **files)
    stack = until(
        lambda: "PROGRESS" not in (found := heat.get_stack(f"cephfit-{own_run}")).status and found, seconds=1500
    )
    assert stack.status == "CREATE_COMPLETE", stack.status_reason
    (results,) = (output["output_value"] for output in stack.outputs if output["output_key"] == "results")
    (said,) = json.loads(results[0]).values()
    assert re.search(r"^tps = [0-9.]+ \(without initial connection time\)$", said, re.MULTILINE)
    assert f"scaling factor: {SCALE}" in said


@ONE_IMAGE
@pytest.mark.takes(seconds=450)
def test_a_prediction_is_held_against_the_workload_in_guests(
    cloud_user: Connection, database_image: str, tmp_path: Path
) -> None:
    before = everything(cloud_user)
    file = sweep_file(tmp_path, configurations="ssd: {volume: {type: ssd}}", seconds=5)
    store = str(tmp_path / "guests.sqlite")
    target = target_text(cloud_user, image=database_image, flavor="cephfit.small")
    done = cephfit("sweep", "run", str(file), "--target", target, "--store", store)
    assert done.returncode == 0, done.stderr
    nothing = dict.fromkeys(("4K", "32K", "128K", "1M", "32M"), 0)
    profile = tmp_path / "profile.json"
    profile.write_text(
        json.dumps(
            {
                "schema_version": 1,
                "name": "reads",
                "random_threshold_lbn": 128,
                "accesses": {"read": {**nothing, "4K": 1000}, "write": nothing},
                "random": {"read": 1.0, "write": 0.0},
                "description": {},
            }
        )
    )
    command = ["verify", "--sweep", str(file), "--store", store, "--target", target, "--profile", str(profile)]
    command += ["--configurations", "ssd", "--scale", str(SCALE), "--repeats", "1", "--seconds", "5", "--json"]
    verified = cephfit(*command)
    assert verified.returncode == 0, verified.stderr
    verdict = json.loads(verified.stdout)
    assert {row["configuration"] for row in verdict["rows"]} == {"A", "ssd"}
    with Store.open(store) as opened:
        (run,) = opened.runs()
        samples = [sample for _, sample in opened.workload_samples(run.run_id) if sample.state is State.OK]
    assert {sample.configuration for sample in samples} == {"A", "ssd"}
    for sample in samples:
        output = sample.evidence["output"]
        assert sample.value is not None
        assert sample.value > 0
        assert output["results_by"] == "signal"
        assert output["database_nbytes"] > SCALE * 14 * 2**20
    until(lambda: everything(cloud_user) == before)
