"""Sweeps on the lab's OpenStack while every call to its services fails twice, once after it was obeyed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from failing_services import FailingServer, failing
from live_cloud import MARKS, cephfit, everything, target_text, until
from openstack.connection import Connection

from cephfit.core.values.sample import Sample, State
from cephfit.lab.cluster import Lab
from cephfit.results.store.sample_store import Store

pytestmark = [*MARKS, pytest.mark.timeout(1500)]

SWEEP = """
schema_version: 1
name: failing
configurations:
  {configurations}
measurement: {{sizes: [4K], patterns: [randread], clients: 1, volume_size: 16M, repeats: 1, ramp_seconds: 0.5,
  run_seconds: 4, max_attempts: 3, cache: warm, seed: 3}}
"""


@pytest.fixture
def services(
    openstack_lab: Lab, cloud_admin: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, FailingServer]]:
    """The services as commands reach them; what tests look at they ask the cloud itself."""
    assert openstack_lab.cloud is not None
    with failing(cloud_admin, openstack_lab.cloud.layout.clouds_yaml, tmp_path) as (clouds_yaml, servers):
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", clouds_yaml)
        yield servers


def swept(cloud: Connection, folder: Path, *, configurations: str, **target: str) -> list[Sample]:
    """All samples of a sweep that was run to its end."""
    before = everything(cloud)
    file, store = folder / "failing.yaml.sweep", folder / "failing.sqlite"
    file.write_text(SWEEP.format(configurations=configurations))
    done = cephfit("sweep", "run", str(file), "--target", target_text(cloud, **target), "--store", str(store))
    assert done.returncode == 0, done.stderr
    until(lambda: everything(cloud) == before)
    with Store.open(str(store)) as opened:
        (run,) = opened.runs()
        return list(opened.samples(run.run_id))


def n_asked(server: FailingServer, words: str) -> int:
    """How often a kind of call was made."""
    (number,) = (n for kind, n in server.seen.items() if words in kind)
    return number


@pytest.mark.cloud_whole
@pytest.mark.takes(seconds=190)
def test_a_sweep_loses_no_cell_and_makes_nothing_twice(
    services: dict[str, FailingServer], cloud_admin: Connection, tmp_path: Path
) -> None:
    capped = "capped: {volume: {qos: {total_iops_sec: 400}}}"
    samples = swept(cloud_admin, tmp_path, configurations=capped)
    assert [(s.state, s.key.attempt) for s in samples] == [(State.OK, 0)] * 2, "none was taken again"
    for sample in samples:
        assert "hypervisor" in sample.evidence["independent_count"]["source"]
    # One whose request did not arrive, and one whose answer was lost: what that made was found.
    for what in ("/qos-specs", "/types volume_type"):
        assert n_asked(services["block_storage"], f"POST /v3/ID{what}") == 2
    for what in ("metadata", "action addProjectAccess"):
        assert n_asked(services["block_storage"], what) >= 3
    assert n_asked(services["compute"], "/diagnostics") >= 3


@pytest.mark.takes(seconds=150)
def test_guests_without_a_network_are_measured_by_their_consoles(
    services: dict[str, FailingServer], cloud_admin: Connection, tmp_path: Path
) -> None:
    (sample,) = swept(cloud_admin, tmp_path, configurations="A: {}", network="")
    assert (sample.state, sample.key.attempt) == (State.OK, 0)
    assert sample.metrics is not None
    assert sample.metrics.iops > 0
    assert sample.evidence["results_by"] == "console"
    # Volume filled, volume read, cell measured; the first rebuild was asked for once and its answer lost.
    assert n_asked(services["compute"], "action rebuild") == 4
