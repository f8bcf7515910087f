"""The rates of all loads of a run, from its samples, its store and its export."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from example_run import RUN_ID, example_run

from cephfit.core.values.cells import Cell, LoadedCell, Pattern
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.results import open_baselines
from cephfit.results.statistics.loads import more_clients
from cephfit.results.statistics.sample_baselines import OWN_LOAD_TITLE, baselines_of, measured_of
from cephfit.results.statistics.scaling import curves_of
from cephfit.results.store.sample_store import Store
from cephfit.results.tables import baseline_csv

LARGE, SMALL = Cell.parse("128K-randwrite"), Cell.parse("4K-randread")
LOADS: dict[str, dict[str, Any]] = {
    "": {},
    "deep": {"iodepth": 16},
    "unaligned": {"align_nbytes": 4096},
    "committed": {"sync": "fsync"},
    "crowd": {"clients": 2},
    "mixed": {"read_pct": 70},
    "gentle": {"rate_iops": 20},
}
RATES = {name: 100.0 * (i + 1) for i, name in enumerate(LOADS)}


def samples(loads: Iterable[str] = LOADS, *, repeats: int = 2, own: Mapping[str, Any] = {}) -> list[Sample]:
    """Two cells of A and B; B gives twice A's rate, and the second round 1 % more."""
    found = []
    for load in loads:
        shape = {"iodepth": 1, "clients": 1, "read_pct": None, "rate_iops": None, "rate_nbytes_per_s": None}
        shape |= LOADS[load] if load else own
        for name in "AB":
            for cell in (SMALL, LARGE):
                for repeat in range(repeats):
                    for i in range(shape["clients"]):
                        iops = RATES[load] * (2 if name == "B" else 1) * (1.01 if repeat else 1.0)
                        key = SampleKey(name, cell, f"c{i}", repeat, load=load)
                        metrics = Metrics(iops, iops * cell.size.benchmark_nbytes, 100, 10**9, 1e6)
                        found.append(Sample(key, State.OK, metrics, 1, 2, "", {"load": shape}))
    return found


def rates(loaded: Mapping[tuple[str, LoadedCell], Any]) -> dict[str, float]:
    """A's first rate by loaded cell."""
    return {str(cell): baseline.iops[0] for (name, cell), baseline in loaded.items() if name == "A"}


def test_all_loads_with_as_many_clients_and_at_full_speed_are_loaded() -> None:
    found = baselines_of(samples(), source="test")
    assert rates(found.loaded) == {
        "4K-randread": 100.0,
        "128K-randwrite": 100.0,
        "4K-randread (depth 16)": 200.0,
        "128K-randwrite (depth 16)": 200.0,
        "128K-randwrite (aligned to 4K)": 300.0,
        "128K-randwrite (fsync)": 400.0,
    }
    assert found.of("B", LoadedCell(131072, Pattern.RANDWRITE, 16)).iops == (400.0, 404.0)
    for place, baseline in found.cells.items():
        size = place[1].size.benchmark_nbytes
        assert found.loaded[place[0], LoadedCell(size, place[1].pattern)] == baseline


def test_a_chosen_load_brings_the_loads_with_its_number_of_clients() -> None:
    crowd = baselines_of(samples(), source="test", load="crowd")
    assert rates(crowd.loaded) == {"4K-randread": 1000.0, "128K-randwrite": 1000.0}
    deep = baselines_of(samples(), source="test", load="deep")
    assert deep.loaded == baselines_of(samples(), source="test").loaded
    assert deep.of("A", LARGE).iops == (200.0, 202.0)


@pytest.mark.parametrize("load", ["mixed", "gentle"])
def test_rates_under_a_mix_or_a_limit_are_not_replaced_by_others(load: str) -> None:
    found = baselines_of(samples(), source="test", load=load)
    assert found.of("A", LARGE).iops[0] == RATES[load]
    assert not found.loaded


def test_samples_without_the_shape_of_their_load_give_only_cells() -> None:
    old = [Sample(s.key, s.state, s.metrics, 1, 2) for s in samples([""])]
    found = baselines_of(old, source="test")
    assert found.of("A", LARGE).iops == (100.0, 101.0)
    assert not found.loaded


def test_rounds_are_passes_over_the_configurations_under_every_load() -> None:
    """The first round of one load failed: its only rate is of round 1, as under the other loads."""
    kept = [
        Sample(s.key, State.FAILED, None, 1, 2, "no result", s.evidence)
        if s.key.load == "deep" and s.key.repeat == 0
        else s
        for s in samples()
    ]
    found = baselines_of(kept, source="test")
    assert found.of("A", LoadedCell(131072, Pattern.RANDWRITE, 16)).rounds == (1,)
    assert found.of("A", LoadedCell(131072, Pattern.RANDWRITE)).rounds == (0, 1)
    assert not found.missing


@pytest.mark.parametrize("load", ["", "deep", "mixed"])
@pytest.mark.parametrize("own", [{}, {"align_nbytes": 4096}, {"sync": "every 8", "iodepth": 32}])
def test_an_export_reads_back_as_the_store(tmp_path: Path, load: str, own: Mapping[str, Any]) -> None:
    path = tmp_path / "loads.sqlite"
    with Store.open(path, create=True) as store:
        store.add_run(example_run())
        for sample in samples(own=own):
            store.add_samples(RUN_ID, [sample], fio_json=None)
        measured = measured_of(store.samples(RUN_ID), load=load)[0]
    from_store = open_baselines(path, load=load)
    read = baseline_csv.loads(baseline_csv.dumps(measured, example_run()))
    assert read.cells == from_store.cells
    if load != "mixed":
        assert read.loaded == from_store.loaded
        assert len(read.loaded) >= 10


def test_a_single_load_at_depth_1_is_exported_without_further_columns() -> None:
    text = baseline_csv.dumps(measured_of(samples([""]))[0])
    assert text.splitlines()[0] == "configuration,size,pattern,client,run,iops,target,simulated"
    deep = baseline_csv.dumps(measured_of(samples(["", "deep"]), load="deep")[0]).splitlines()
    assert deep[0] == "configuration,size,pattern,client,run,iops,load,iodepth,clients,sync,align,target,simulated"
    assert deep[1] == "A,4K,randread,c0,0,200.0,,16,1,,own,,"
    assert deep[-1] == f"B,128K,randwrite,c0,1,202.0,{OWN_LOAD_TITLE},1,1,,own,,"


def test_loads_that_differ_in_alignment_or_commits_are_on_no_common_curve() -> None:
    (curve,) = (
        c
        for c in curves_of(samples(["", "deep", "unaligned", "committed"]))
        if c.configuration == "A" and c.cell == LARGE
    )
    assert [(point.x, point.load) for point in curve.points] == [(1, ""), (16, "deep")]


def test_loads_with_more_clients_are_named() -> None:
    (sentence,) = more_clients(samples(), "")
    assert "rates per second are those of 1 client; 2 clients together may get more: `--load crowd`" in sentence
    assert more_clients(samples(), "crowd") == ()
    assert more_clients(samples(["", "deep"]), "") == ()
    assert more_clients(samples(), "mixed") == (), "no load with the same mix has more clients"
