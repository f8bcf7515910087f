"""What the runs were bound by, counted over the samples."""

from dataclasses import replace

from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.results.report.run_notes import bottlenecks_of, stalls_note


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


MS = 1e6


def waiting(configuration: str, repeat: int, mean_ms: float, p75_ms: float, *, load: str = "") -> Sample:
    its = sample(configuration, "4K-randwrite", repeat)
    assert its.metrics is not None
    latencies = {50.0: p75_ms * MS / 2, 75.0: p75_ms * MS}
    metrics = replace(its.metrics, latency_mean_ns=mean_ms * MS, latency_percentiles_ns=latencies)
    return replace(its, key=replace(its.key, load=load), metrics=metrics)


def test_cells_are_named_in_which_few_accesses_took_most_of_the_time():
    """Real 4K random writes on a throttled lab: its hard disks stall at 500 I/Os per second, its SSDs do not."""
    hdd = [waiting("A", 0, 8.22, 3.56), waiting("A", 1, 7.41, 3.52)]
    ssd = [waiting("ssd", 0, 2.66, 2.90), waiting("ssd", 1, 3.15, 3.26)]
    said = stalls_note(hdd + ssd)
    assert "took most of the time: A 4K-randwrite. " in said
    assert stalls_note(ssd) == ""
    assert "A 4K-randwrite under qd4. " in stalls_note(
        [*ssd, *(replace(s, key=replace(s.key, load="qd4")) for s in hdd)]
    )


def test_a_single_stalled_sample_may_be_chance():
    assert stalls_note([waiting("A", 0, 9, 3), waiting("A", 1, 3, 3), waiting("B", 0, 9, 3)]) == ""


def test_samples_without_percentiles_say_nothing_about_stalls():
    assert stalls_note([sample("A", "4K-write", 0), sample("A", "4K-write", 1)]) == ""
