"""Stores of one sweep on several releases of Ceph, with known differences between the releases."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from cephfit.core.units import NS_PER_S
from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import Metrics, Run, Sample, SampleKey, State, WorkloadSample
from cephfit.results.store.sample_store import Store

BASE_IOPS: Mapping[str, float] = {
    "4K-randread": 1000.0, "4K-randwrite": 200.0, "128K-read": 400.0, "128K-write": 100.0,
}  # fmt: skip
"""On the oldest release, one client."""
SWEEP_TEXT = """\
schema_version: 1
name: upgrade
configurations:
  fast: {ceph: {osd: {osd_op_queue: wpq}}}
measurement: {repeats: 5, clients: 1, seed: 7}
"""
_NAMES = {"16": "pacific", "18": "reef", "20": "tentacle"}


def facts_of(version: str, fsid: str) -> dict[str, object]:
    """Facts as the lab's: one release, one HDD."""
    line = f"ceph version {version} (6b0e) {_NAMES[version[:2]]} (stable)"
    return {
        "versions": {"ceph": {line: 7}},
        "fsid": fsid,
        "osds": [{"id": 0, "rotational": "1", "device_class": "hdd"}],
    }


def measure_release(
    store: Path,
    version: str,
    factors: Mapping[str, float],
    *,
    target: str = "lab:default",
    fsid: str = "one",
    began_ns: int = 0,
    tps: Iterable[float] = (),
    repeats: int = 5,
    noise: float = 0.02,
) -> str:
    """Add a finished run of a release; return its id.

    Args:
        factors: rate over ``BASE_IOPS`` by cell; 1 where not given. Configuration ``fast`` has twice the rate.
        tps: results of the real workload ``shop`` on the default.
        noise: standard deviation of the logarithm of every rate.
    """
    random = np.random.default_rng([int(version[:2]), len(target)])
    run_id = f"upgrade-{version}-{target.replace(':', '-')}"
    run = Run(run_id, "upgrade", SWEEP_TEXT, "ab" * 32, target, 7, began_ns, facts_of(version, fsid))
    with Store.open(str(store), create=True) as opened:
        opened.add_run(run)
        for repeat in range(repeats):
            for configuration, gain in (("A", 1.0), ("fast", 2.0)):
                for name, iops in BASE_IOPS.items():
                    rate = iops * gain * factors.get(name, 1.0) * float(np.exp(random.normal(0, noise)))
                    opened.add_samples(run_id, [_sample(configuration, name, repeat, rate)], fio_json=None)
        for repeat, value in enumerate(tps):
            sample = WorkloadSample("A", repeat, 0, State.OK, "tps", value, repeat, repeat + 1)
            opened.add_workload_sample(run_id, "shop", sample)
        opened.finish_run(run_id)
    return run_id


def _sample(configuration: str, cell: str, repeat: int, iops: float) -> Sample:
    key = SampleKey(configuration, Cell.parse(cell), "c0", repeat, 0)
    nbytes_per_s = iops * key.cell.size.benchmark_nbytes
    metrics = Metrics(iops, nbytes_per_s, round(2 * iops), 2 * NS_PER_S, 1e9 / iops, {50.0: 0.9e9 / iops})
    return Sample(key, State.OK, metrics, repeat * NS_PER_S, (repeat + 2) * NS_PER_S, "", {"cache": "cold"})


def profile_text(name: str, counts: Mapping[str, Sequence[float]], random_share: Mapping[str, float]) -> str:
    """A profile as JSON: accesses by op in the sizes 4K, 32K, 128K, 1M, 32M."""
    from cephfit.core.values.cells import SIZE_BINS, Op
    from cephfit.core.values.profile import Profile

    names = [size.name for size in SIZE_BINS]
    accesses = {Op(op): dict(zip(names, of_op, strict=True)) for op, of_op in counts.items()}
    return Profile(name, accesses, {Op(op): share for op, share in random_share.items()}).dumps()
