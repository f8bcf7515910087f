"""What the runs were bound by, counted over the samples."""

from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.results.report.run_notes import bottlenecks_of


def sample(configuration: str, cell: str, repeat: int, what: str = "", steady: bool | None = None) -> Sample:
    evidence: dict = {}
    if what:
        evidence["used"] = {"bottleneck": {"what": what, "sentence": f"{what} in round {repeat}"}}
    if steady is not None:
        evidence["steadiness"] = {"steady": steady, "drift": 0.0, "excursion": 0.0}
    key = SampleKey(configuration, Cell.parse(cell), "c0", repeat)
    return Sample(key, State.OK, Metrics(1.0, 4096.0, 1, 10**9, 1.0), 1, 2, evidence=evidence)


def test_causes_are_counted_per_configuration_and_pattern():
    found = bottlenecks_of(
        [
            sample("A", "4K-randread", 0, "CPU", steady=True),
            sample("A", "1M-randread", 0, "disks of hdd", steady=False),
            sample("A", "1M-randread", 1, "disks of hdd"),
            sample("A", "4K-write", 0, "latency"),
            sample("B", "4K-write", 0, "CPU"),
        ],
        load="",
    )
    assert found is not None
    assert found.patterns == ("write", "randread")
    a, b = found.rows
    assert a.causes == ("latency 100 %", "disks of hdd 67 %, CPU 33 %")
    assert a.example == "disks of hdd in round 0"
    assert b.causes == ("CPU 100 %", "")
    assert (found.n_runs, found.n_followed, found.n_unsteady) == (5, 2, 1)


def test_runs_that_nobody_watched_and_other_loads_give_nothing():
    assert bottlenecks_of([sample("A", "4K-read", 0)], load="") is None
    assert bottlenecks_of([sample("A", "4K-read", 0, "CPU")], load="qd16") is None
