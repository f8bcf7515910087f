"""Pools on two device classes, an erasure code and a cache tier on one cluster of six OSDs, measured."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_state import state_of
from scipy import stats

from cephfit.core.protocols import NullProgress
from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import Sample, State
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_spec import LabSpec
from cephfit.lab.lab_target import LabTarget
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import bundled_sweep, parse_sweep
from cephfit.sweep.execution.runner import run_sweep
from cephfit.sweep.sweep_plan import Sweep

pytestmark = [pytest.mark.ceph, pytest.mark.root, pytest.mark.fio, pytest.mark.slow, pytest.mark.timeout(2400)]

CELLS = ("1M-read", "1M-randwrite", "4K-randread")
TRIED = ("A", "ssd", "coded", "tiered")
LEVEL = 0.05
"""Significance level; the pools differ by a factor of three and more."""


@pytest.fixture(scope="module")
def six_osds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab.up(f"tests-six-{os.getpid()}", folder=tmp_path_factory.mktemp("six"), spec=LabSpec(n_hosts=3))
    try:
        yield lab
    finally:
        lab.down()


def small() -> Sweep:
    """Three cells and four configurations of the bundled sweep."""
    text = bundled_sweep("heterogeneous").read_text()
    sweep = parse_sweep(text, file="heterogeneous.yaml")
    cells = tuple(Cell.parse(cell, where="test") for cell in CELLS)
    return replace(
        sweep,
        configurations=tuple(sweep.configuration(name) for name in TRIED),
        measurement=replace(
            sweep.measurement, cells=cells, volume_nbytes=128 << 20, repeats=4, run_seconds=2.0, n_clients=1
        ),
    )


def rates(samples: list[Sample], configuration: str, cell: str) -> list[float]:
    return [
        s.metrics.iops
        for s in samples
        if s.key.configuration == configuration and str(s.key.cell) == cell and s.state is State.OK and s.metrics
    ]


def test_kinds_of_pools_differ_measurably_and_leave_the_cluster_as_it_was(six_osds: Lab, tmp_path: Path) -> None:
    before = state_of(six_osds)
    target = LabTarget(six_osds)
    try:
        with Store.open(tmp_path / "s.sqlite", create=True) as store:
            run = run_sweep(small(), target, store, NullProgress(), resume=None)
            samples = store.samples(run.run_id)
            applied = {a.configuration: a for _, a in store.applied(run.run_id)}
        target.reset()
    finally:
        target.close()
    assert state_of(six_osds) == before
    assert all(applied[name].ok for name in TRIED)
    for name in TRIED:
        for cell in CELLS:
            assert len(rates(samples, name, cell)) >= 3, f"{name} in {cell}"
    faster = (
        ("ssd", "A", "1M-read"),
        ("ssd", "A", "1M-randwrite"),
        ("ssd", "coded", "1M-read"),
        ("tiered", "A", "1M-randwrite"),  # reads depend on what the tier has promoted so far
    )
    for one, other, cell in faster:
        fast, slow = rates(samples, one, cell), rates(samples, other, cell)
        test = stats.ttest_ind(fast, slow, equal_var=False, alternative="greater")
        assert test.pvalue < LEVEL, f"{one} against {other} in {cell}: {fast} {slow}"
