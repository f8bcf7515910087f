"""A run with a known truth, as the sweep, the mapper and the verification would have stored it."""

import json
import math
import random

from cephfit.core.protocols import Applied
from cephfit.core.units import NS_PER_S
from cephfit.core.values.assessment import Assessment, AssessmentRow
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Op
from cephfit.core.values.prediction import CellReason, Prediction, PredictionSet, Verdict
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import Metrics, Run, Sample, SampleKey, State, WorkloadSample
from cephfit.results.store.sample_store import Store

RUN_ID = "quick-20261121T101500-3f9a"
BEGUN_NS = 1_795_256_100 * NS_PER_S
CLIENTS = ("c0", "c1")
REPEATS = 2
NOISE = 0.03

SWEEP_TEXT = """\
schema_version: 1
name: quick
description: the default and five configurations <that differ> & one that does not
configurations:
  A: {why: "Ceph's defaults on the lab"}
  A-again: {why: "the default under another name"}
measurement: {repeats: 2, clients: 2, seed: 2017}
"""


def truth(configuration: str, cell: Cell) -> float:
    """How many times the default's rate a configuration gives."""
    small = cell.size.benchmark_nbytes <= 32 << 10
    random_access = cell.pattern.is_random
    reads = cell.pattern.op is Op.READ
    match configuration:
        case "hybrid":
            return (4.0 if random_access and reads else 2.1 if reads else 1.0) * (1.0 if small else 0.8)
        case "no-deferred":
            return 0.42 if small and not reads else 0.97
        case "one-copy":
            return 1.0 if reads else 1.8
        case "readahead":
            return 2.4 if reads and not random_access and small else 1.0
        case "throttled":
            return 0.25 if cell.size.benchmark_nbytes >= 1 << 20 else 0.6
        case _:
            return 1.0


CONFIGURATIONS = ("A", "A-again", "hybrid", "no-deferred", "one-copy", "readahead", "throttled")


def default_iops(cell: Cell) -> float:
    seconds = 0.004 + cell.size.benchmark_nbytes / 40e6
    return (0.5 if cell.pattern.is_random else 1.0) * (1.0 if cell.pattern.op is Op.READ else 0.6) / seconds


def example_samples() -> list[list[Sample]]:
    """Samples in groups of one fio run; one was invalid and taken again, one cell never worked."""
    rng = random.Random(2017)
    groups = []
    now = BEGUN_NS
    for repeat in range(REPEATS):
        for configuration in sorted(CONFIGURATIONS, key=lambda _: rng.random()):
            for cell in CELLS:
                now += 3 * NS_PER_S
                dead = configuration == "throttled" and str(cell) == "32M-randwrite"
                disturbed = configuration == "hybrid" and str(cell) == "4K-randread" and repeat == 1
                for attempt in range(2 if disturbed else 1):
                    groups.append(
                        [
                            _sample(rng, configuration, cell, c, repeat, attempt, now, dead, disturbed)
                            for c in CLIENTS
                        ]
                    )
    return groups


def _sample(
    rng: random.Random,
    configuration: str,
    cell: Cell,
    client: str,
    repeat: int,
    attempt: int,
    now: int,
    dead: bool,
    disturbed: bool,
) -> Sample:
    key = SampleKey(configuration, cell, client, repeat, attempt)
    if dead:
        return Sample(key, State.FAILED, None, now, now + NS_PER_S, "fio ended with status 1: No space left")
    iops = default_iops(cell) * truth(configuration, cell) * math.exp(rng.gauss(0, NOISE))
    nbytes_per_s = iops * cell.size.benchmark_nbytes
    metrics = Metrics(
        iops, nbytes_per_s, max(int(iops * 2), 1), 2 * NS_PER_S, 1e9 / iops, {50.0: 0.9e9 / iops, 99.0: 3e9 / iops}
    )
    evidence = {
        "cache": "cold",
        "independent_count": {"source": "kernel", "window_nbytes": nbytes_per_s * 2 * (1 + rng.gauss(0, 0.001))},
    }
    state, reason = State.OK, ""
    if disturbed and attempt == 0:
        state, reason = State.INVALID, "2 PGs active+recovering while it ran"
    return Sample(key, state, metrics, now, now + 2 * NS_PER_S, reason, evidence)


def example_profile() -> Profile:
    accesses = {
        Op.READ: dict(zip((b.name for b in SIZE_BINS), (41_200, 3_100, 900, 60, 0), strict=True)),
        Op.WRITE: dict(zip((b.name for b in SIZE_BINS), (17_300, 2_250, 310, 12, 0), strict=True)),
    }
    size = [
        512,
        1024,
        2048,
        4095,
        4096,
        8191,
        8192,
        16383,
        16384,
        32768,
        49152,
        65535,
        65536,
        81920,
        131072,
        262144,
    ]
    seek = [-500000, -50000, -5000, -500, -64, -8, -1, 0, 1, 8, 64, 500, 5000, 50000, 500000]
    latency = [1, 10, 100, 500, 1000, 5000, 15000, 30000, 50000, 100000]
    outstanding = [1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 64]
    rng = random.Random(1)

    def series(limits: list[int], peak: int, n: int) -> dict[str, list[int]]:
        weights = [math.exp(-abs(i - peak) / 1.4) * (0.4 + rng.random()) for i in range(len(limits) + 1)]
        return {"limits": limits, "counts": [round(n * w / sum(weights)) for w in weights]}

    def both(limits: list[int], read: int, write: int) -> dict[str, dict[str, list[int]]]:
        return {"read": series(limits, read, 45_000), "write": series(limits, write, 19_900)}

    return Profile(
        "pgbench",
        accesses,
        {Op.READ: 0.93, Op.WRITE: 0.61},
        description={
            "behaviour": example_behaviour(),
            "histograms": {
                "size": both(size, 6, 6),
                "seek_distance": both(seek, 13, 8),
                "latency_us": both(latency, 5, 7),
                "outstanding": both(outstanding, 2, 1),
            },
        },
    )


BIN_SECONDS = 0.5
PHASE_BINS = ((40, 200, 20), (100, 60, 400), (60, 400, 500))
"""Of each phase: bins, reads and writes per second."""
BURST_BINS = (90, 91)
"""Bins of phase 2 with five times its rate."""


def example_behaviour() -> dict[str, object]:
    """What a profile has of a trace of 100 s with three phases and a burst; half of the accesses in one region."""
    rates = [of_phase[1:] for of_phase in PHASE_BINS for _ in range(of_phase[0])]
    times = [5 if i in BURST_BINS else 1 for i in range(len(rates))]
    counts = [[round(r * k * BIN_SECONDS) for r in rate] for rate, k in zip(rates, times, strict=True)]
    reads, writes = ([row[i] for row in counts] for i in (0, 1))
    phases, first = [], 0
    for n_bins, *_ in PHASE_BINS:
        n = [sum(its[first : first + n_bins]) for its in (reads, writes)]
        bins = [dict.fromkeys((b.name for b in SIZE_BINS), 0) | {"4K": k} for k in n]
        phases.append(
            {
                "start_seconds": first * BIN_SECONDS,
                "seconds": n_bins * BIN_SECONDS,
                "share_of_accesses": sum(n) / sum(map(sum, counts)),
                "iops": sum(n) / (n_bins * BIN_SECONDS),
                "bytes_per_second": 4096 * sum(n) / (n_bins * BIN_SECONDS),
                "accesses": dict(zip(("read", "write"), bins, strict=True)),
                "random": {"read": 0.9, "write": 0.2},
                "random_by_bin": {"read": {"4K": 0.9}, "write": {"4K": 0.2}},
            }
        )
        first += n_bins
    heat = [[sum(row) // 2 if place == 3 else sum(row) // 46 for place in range(24)] for row in counts[::2]]
    return {
        "over_time": {
            "bin_seconds": BIN_SECONDS,
            "start_seconds": 0.0,
            "reads": reads,
            "writes": writes,
        },
        "phases": phases,
        "disks": {
            "sda": {
                "footprint": {"reaccess_share": 0.6},
                "hot_spots": {
                    "region_nbytes": 1 << 20,
                    "regions_touched": 2048,
                    "share_of_regions": {"accesses": {"50%": 0.02, "80%": 0.125, "90%": 0.5}},
                },
                "heat_map": {
                    "bin_seconds": 2 * BIN_SECONDS,
                    "start_seconds": 0.0,
                    "region_nbytes": 1 << 28,
                    "first_lbn": 0,
                    "rows": [" ".join(map(str, row)) for row in heat],
                },
            }
        },
    }


def example_predictions(best: str = "hybrid", worst: str = "throttled") -> PredictionSet:
    counts = example_profile().cell_counts()
    cost = {cell: n / default_iops(cell) for cell, n in counts.items()}
    total = sum(cost.values())
    weights = {cell: c / total for cell, c in cost.items() if c}
    rows = []
    for name in CONFIGURATIONS:
        share = sum(w / truth(name, cell) for cell, w in weights.items())
        relative = 100 / share
        reasons = tuple(
            CellReason(cell, w, 100 * truth(name, cell), -100 * w * (1 / truth(name, cell) - 1) / share)
            for cell, w in sorted(weights.items(), key=lambda item: -item[1])
        )
        half = 0.0 if name == "A" else 0.045 * relative
        same = abs(relative - 100) < half
        verdict = (
            Verdict.DEFAULT
            if name == "A"
            else Verdict.INDISTINGUISHABLE
            if same
            else (Verdict.BETTER if relative > 100 else Verdict.WORSE)
        )
        rows.append(Prediction(name, relative, relative - half, relative + 1.1 * half, verdict, reasons))
    rows.sort(key=lambda p: -p.relative)
    return PredictionSet(
        "time",
        "pgbench",
        "quick",
        tuple(rows),
        best,
        worst,
        0.95,
        4.4,
        ("32M-randwrite of throttled has no baseline; the workload does not use it.",),
    )


def example_assessment() -> Assessment:
    predictions = example_predictions()
    rng = random.Random(7)
    measured = {"hybrid": 1.06, "A": 1.0, "throttled": 0.94}
    rows = []
    for name, off in measured.items():
        p = predictions.of(name)
        values = tuple(412 * off * p.relative / 100 * (1 + rng.gauss(0, 0.02)) for _ in range(5))
        rows.append((p, values))
    scale = sum(rows[1][1]) / 5
    return Assessment(
        "pgbench",
        "tps",
        "time",
        tuple(
            AssessmentRow(
                p.configuration,
                p.relative,
                p.low,
                p.high,
                100 * sum(v) / 5 / scale,
                100 * min(v) / scale,
                100 * max(v) / scale,
                v,
            )
            for p, v in rows
        ),
        order_held=True,
        regret_pct=0.0,
        regret_low_pct=0.0,
        regret_high_pct=0.0,
        ties=(),
        notes=("Each run lasted 30 s.",),
    )


def example_run(**changes: object) -> Run:
    facts = {
        "ceph": {"version": "16.2.15 (pacific)"},
        "kernel": "6.1.0",
        "cpus": 2,
        "osds": [{"id": 0, "class": "hdd"}, {"id": 1, "class": "ssd"}],
        "clock": "ntp synchronised",
        "keyring": "AQDnot-to-be-shown",
    }
    values = {
        "run_id": RUN_ID,
        "sweep_name": "quick",
        "sweep_text": SWEEP_TEXT,
        "sweep_digest": "ab" * 32,
        "target": "lab:default",
        "seed": 2017,
        "created_ns": BEGUN_NS,
        "facts": facts,
    }
    return Run(**{**values, **changes})  # type: ignore[arg-type]


FIO_JSON = json.dumps(
    {
        "fio version": "fio-3.33",
        "global options": {"ioengine": "libaio", "direct": "1", "runtime": "2"},
        "jobs": [{"jobname": "c0", "job options": {"rw": "randread", "bs": "4096"}}],
    }
)


def fill(store: Store, *, documents: bool = True, target: str = "lab:default") -> None:
    """The whole run: what a finished demo leaves behind."""
    store.add_run(example_run(target=target))
    for repeat in range(REPEATS):
        for name in CONFIGURATIONS:
            read_back = (
                {}
                if name.startswith("A")
                else {f"ceph/osd/{name.replace('-', '_')} = 0": {"osd.0": "0", "osd.1": "0"}}
            )
            store.add_applied(
                RUN_ID,
                Applied(name, True, (), read_back, ("osd.0",) if read_back else (), 4.2),
                repeat=repeat,
                at_ns=BEGUN_NS + repeat,
            )
    for group in example_samples():
        store.add_samples(RUN_ID, group, fio_json=FIO_JSON)
    if documents:
        store.put_document(RUN_ID, "profile", example_profile().to_json())
        store.put_document(RUN_ID, "predictions", example_predictions().to_json())
        store.put_document(RUN_ID, "verification", example_assessment().to_json())
        for row in example_assessment().rows:
            for repeat, value in enumerate(row.values):
                sample = WorkloadSample(
                    row.configuration, repeat, 0, State.OK, "tps", value, BEGUN_NS, BEGUN_NS + 1
                )
                store.add_workload_sample(RUN_ID, "pgbench", sample)
    store.finish_run(RUN_ID)
