"""All cells on the lab's OpenStack, in a sweep that is killed: a shorter version of openstack-quick."""

import time
from importlib import resources
from pathlib import Path

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from live_cloud import MARKS, cephfit, everything, n_samples, started, target_text, until
from openstack.connection import Connection

from cephfit.core.values.sample import State
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep

pytestmark = [*MARKS, pytest.mark.cloud_whole, pytest.mark.timeout(3000)]

SHORTER = {"volume_size: 128M": "volume_size: 64M"}
"""Runs of less than 6 s are often invalid: emulated guests start tenths of a second apart."""
KILLED_AFTER = 30
"""Samples, a quarter of all."""


@pytest.mark.takes(seconds=900)
def test_all_cells_of_two_types_over_three_guests_are_measured_across_a_kill(
    cloud_user: Connection, tmp_path: Path
) -> None:
    before = everything(cloud_user)
    text = (resources.files("cephfit.sweeps") / "openstack-quick.yaml").read_text()
    for usual, shorter in SHORTER.items():
        assert usual in text
        text = text.replace(usual, shorter)
    sweep = parse_sweep(text, file="openstack-quick.yaml")
    file, store = tmp_path / "quick.yaml", tmp_path / "quick.sqlite"
    file.write_text(text)
    command = ("sweep", "run", str(file), "--target", target_text(cloud_user), "--store", str(store))
    first = started(*command)
    while n_samples(store) < KILLED_AFTER:
        assert first.poll() is None, first.communicate()
        time.sleep(1)
    first.kill()
    first.communicate()
    with Store.open(str(store)) as opened:
        (run,) = opened.runs()
        kept = {sample.key: sample for sample in opened.samples(run.run_id)}

    second = cephfit(*command)
    assert second.returncode == 0, second.stderr
    assert f"continuing run {run.run_id}" in second.stderr
    with Store.open(str(store)) as opened:
        (run,) = opened.runs()
        samples = list(opened.samples(run.run_id))
    for sample in samples:
        assert kept.get(sample.key, sample) == sample, "samples from before the kill are unchanged"
    good = [sample for sample in samples if sample.state is State.OK]
    expected = {
        (configuration, cell, f"c{n}")
        for configuration in ("A", "ssd")
        for cell in sweep.measurement.cells
        for n in range(sweep.measurement.n_clients)
    }
    assert len(expected) == 2 * 20 * 3
    assert {(s.key.configuration, s.key.cell, s.key.client) for s in good} == expected
    assert len(good) == len(expected), "no sample is there twice"
    until(lambda: everything(cloud_user) == before)
