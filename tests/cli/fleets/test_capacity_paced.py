"""`cephfit capacity` with loads of limited rates, on simulated clusters that serve a known number of clients."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cephfit.cli.main import cephfit
from cephfit.core.errors import InputError
from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import Configuration
from cephfit.measure.engine import CellRun
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.targets.simulated import simulated_target

SWEEP = """
schema_version: 1
name: paced
description: two pools at full speed and at limited rates
configurations:
  A: {}
  ssd: {pool: {crush_rule: ssd}}
measurement:
  {sizes: [4K], patterns: [randread, randwrite], clients: 1, volume_size: 64M, repeats: 3,
   ramp_seconds: 0.3, run_seconds: 1.5, ioengine: libaio, iodepth: 1, direct: true, cache: cold, seed: 1,
   loads: {
    in-flight-4: {clients: 4}, in-flight-32: {clients: 4, iodepth: 8}, in-flight-256: {clients: 4, iodepth: 64},
    flushed-1: {sync: fsync}, flushed-32: {sync: fsync, clients: 4, iodepth: 8},
    PACED
   }}
"""
RATES = (10, 20, 40, 55, 62, 100, 200, 260, 310, 500, 560, 600, 900, 1350, 1450, 1550)
PACED = [
    f"paced{sync and '-flushed'}-{rate}: {{clients: 4, iodepth: 8, rate_iops: {rate}, arrivals: random{sync}}}"
    for sync in ("", ", sync: fsync")
    for rate in (1, *RATES)
]
WORKLOADS = {"reader": ("4K-randread", ""), "writer": ("4K-randwrite", ""), "log": ("4K-randwrite", "fsync")}
N_ALONE = 14
"""Clients at whose rates together a pool is full."""


def give(*arguments: object) -> str:
    done = CliRunner().invoke(cephfit, [str(word) for word in arguments], catch_exceptions=False)
    assert done.exit_code in (0, 1), done.output
    return done.stdout


def sweep_of(*, is_paced: bool) -> str:
    return SWEEP.replace("PACED", ",\n    ".join(PACED) if is_paced else "in-flight-2: {clients: 2}")


def write_profile(folder: Path, name: str, per_s: float) -> Path:
    """A workload of random 4K accesses, one outstanding."""
    cell, sync = WORKLOADS[name]
    is_read = cell.endswith("read")
    n = round(60 * per_s)
    columns = ["pattern", "nbytes", "is_aligned", "depth", "is_sync", "accesses", "waiting_seconds"]
    flushes = n if sync else 0
    document = {
        "schema_version": 1,
        "name": name,
        "accesses": {"read": {"4K": n if is_read else 0}, "write": {"4K": 0 if is_read else n}},
        "random": {"read": 1, "write": 1},
        "demands": {"columns": columns, "rows": [[cell[3:], 4096, True, 1.0, True, n, None]]},
        "commits": {"flushes": flushes, "flush_waiting_seconds": None, "fua_writes": 0, "sync_writes": 0},
        "description": {"duration_seconds": 60},
    }
    path = folder / f"{name}-{per_s}.json"
    path.write_text(json.dumps(document))
    return path


def simulated(sim: str, configuration: Configuration, name: str, n: int, rate: int | None) -> tuple[float, float]:
    """IOPS of a client and the 99th percentile in ms of n clients of a workload, without noise."""
    cell, sync = WORKLOADS[name]
    target = simulated_target(f"{sim},noise=0")
    base = parse_sweep(sweep_of(is_paced=False), file="sweep.yaml").measurement
    m = replace(base, n_clients=n, rate_iops=rate, sync=sync, loads=())
    target.apply(configuration, n_clients=n, volume_nbytes=m.volume_nbytes)
    clients = target.clients()
    run = CellRun(
        configuration.name, Cell.parse(cell), 0, 0, m, clients, dict.fromkeys((c.name for c in clients), 1)
    )
    metrics = target.engine().run(run).clients["c0"].metrics
    assert metrics is not None
    return metrics.iops, metrics.latency_percentiles_ns[99.0] / 1e6


def served(sim: str, configuration: Configuration, name: str, rate: int, limit_ms: float) -> int:
    """The number of clients within the limit when they are added one by one."""
    n = 1
    while (found := simulated(sim, configuration, name, n, rate))[0] >= 0.97 * rate and found[1] <= limit_ms:
        n += 1
    return n - 1


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Stores with and without loads of limited rates, by simulation."""
    folder = tmp_path_factory.mktemp("paced")
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        for name, sim, is_paced in (
            ("queue", "sim:burst=0", True),
            ("bucket", "sim:burst=8", True),
            ("full speed", "sim:burst=8", False),
        ):
            sweep, found[name] = folder / "sweep.yaml", folder / f"{name}.sqlite"
            sweep.write_text(sweep_of(is_paced=is_paced))
            give("sweep", "run", sweep, "--target", f"{sim},seed=3", "--store", found[name])
    return found


def counted(store: Path, profile: Path, pool: str, limit_ms: float) -> dict[str, Any]:
    document = json.loads(
        give("capacity", profile, "--baselines", store, "--pool", pool, "--p99-ms", limit_ms, "--json")
    )
    (found,) = document["pools"]
    return {
        **found["classes"][0]["vms_alone"],
        "notes": document["notes"],
        **{key: found[key] for key in ("is_bound", "is_extrapolated")},
    }


@pytest.mark.parametrize(
    ("name", "sim", "factor"), [("queue", "sim:burst=0", 2.0), ("bucket", "sim:burst=8", 1.2)]
)
def test_as_many_clients_as_the_simulation_serves_when_they_are_added_one_by_one(
    stores: Mapping[str, Path], tmp_path: Path, name: str, sim: str, factor: float
) -> None:
    misjudged = 0
    for configuration in parse_sweep(sweep_of(is_paced=False), file="sweep.yaml").configurations:
        for workload in WORKLOADS:
            most = 256 * simulated(sim, configuration, workload, 256, None)[0]
            rate, limit_ms = round(most / N_ALONE), factor * simulated(sim, configuration, workload, 1, None)[1]
            real = served(sim, configuration, workload, rate, limit_ms)
            profile = write_profile(tmp_path, workload, rate)
            found = counted(stores[name], profile, configuration.name, limit_ms)
            assert abs(found["value"] - real) <= max(1, 0.1 * real), (workload, configuration.name, found, real)
            assert found["low"] - 1 <= real <= found["high"] + 1
            assert any("clients with a limited rate" in note for note in found["notes"])
            if name == "bucket":
                full = counted(stores["full speed"], profile, configuration.name, limit_ms)
                assert not any("clients with a limited rate" in note for note in full["notes"])
                misjudged += full["value"] < real / 2
    assert name == "queue" or misjudged >= 3, "full speed alone misjudges several by more than a factor of two"


def test_a_limit_below_the_gentlest_latency_is_refused_and_names_it(
    stores: Mapping[str, Path], tmp_path: Path
) -> None:
    profile = write_profile(tmp_path, "reader", 5)
    done = CliRunner().invoke(
        cephfit, ["capacity", str(profile), "--baselines", str(stores["queue"]), "--p99-ms", "0.01"]
    )
    assert isinstance(done.exception, InputError)
    assert "with the lowest measured rate, the lowest 99th percentile is" in str(done.exception)


def test_an_answer_above_the_measured_rates_is_extrapolated(stores: Mapping[str, Path], tmp_path: Path) -> None:
    """On ssd, four clients at 1550 reads per second do not fill the pool, and the limit is never reached."""
    found = counted(stores["bucket"], write_profile(tmp_path, "reader", 5), "ssd", 1000.0)
    assert any("extrapolated above the highest limited rates" in note for note in found["notes"])
    assert found["is_extrapolated"] and not found["is_bound"]
    assert found["low"] < found["value"] <= found["high"]
