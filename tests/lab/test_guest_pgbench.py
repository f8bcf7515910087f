"""pgbench inside guests: the script, and parsing of its output (without guests)."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from cephfit.cloud.guests.guest_jobs import SIGNAL, Answers, JobResult
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client
from cephfit.core.units import MIB
from cephfit.lab.workloads.pgbench import GuestPgBench, PgBenchSpec, measured_part, script_of, spec_of
from cephfit.measure.fio.fio_servers import Offset

CLIENT = Client("c0", {"filename": "/dev/cephfit-volume"}, 1 << 30)
# A guest of the lab's OpenStack, scale 4, shortened.
SAID = """\
CEPHFIT-WARMUP
pgbench: setting random seed to 5
pgbench (15.20 (Debian 15.20-0+deb12u1))
duration: 3 s
tps = 16.467793 (without initial connection time)
CEPHFIT-STARTED 1795287058.158834
pgbench: setting random seed to 6
duration: 10 s
number of transactions actually processed: 151
tps = 14.328820 (without initial connection time)
CEPHFIT-FINISHED 1795287069.913743
CEPHFIT-DATABASE-NBYTES 70688103
CEPHFIT-SERVER 15.20 (Debian 15.20-0+deb12u1)
"""


class Guests:
    """Guests with the output that a test defines."""

    def __init__(self, output: str, *, code: int = 0) -> None:
        self.said = JobResult(output, "", 1795287020.5, 1795287071.0, code, SIGNAL)
        self.scripts: list[str] = []
        self.n_sent: list[int] = []

    def run_guest_jobs(self, clients: Sequence[Client], scripts: Mapping[str, str], *, seconds: float) -> Answers:
        self.scripts += (scripts[client.name] for client in clients)
        self.n_sent.append(len(clients))
        names = [client.name for client in clients]
        return Answers(dict.fromkeys(names, self.said), 1795287020.0, dict.fromkeys(names, Offset(0.1, 0.3)))


def test_the_measured_run_counts_and_not_the_warm_up() -> None:
    guests = Guests(SAID)
    value, evidence = GuestPgBench(guests, spec_of(4)).run(CLIENT, 10, seed=5)
    assert value == 14.328820
    assert evidence["results_by"] == "signal"
    assert evidence["clock"] == {"ahead_seconds": 0.2, "uncertainty_seconds": 0.1}
    assert evidence["database_nbytes"] == 70688103
    assert evidence["server_version"].startswith("15.20")
    assert evidence["finished_ns"] - evidence["started_ns"] == pytest.approx(11.75e9, rel=0.01)
    assert "export CEPHFIT_STEPS=run\n" in guests.scripts[0]


def test_a_volume_is_read_once_before_the_run_if_caches_shall_be_warm() -> None:
    guests = Guests(SAID)
    workload = GuestPgBench(guests, spec_of(4))
    workload.warm(CLIENT)
    workload.run(CLIENT, 10, seed=5)
    workload.run(CLIENT, 10, seed=5)
    assert ["CEPHFIT_STEPS='warm run'" in script for script in guests.scripts] == [True, False]


def test_a_failed_or_stopped_guest_is_reported_with_its_output() -> None:
    with pytest.raises(ClusterError, match=r"ended with 4: .*could not bind"):
        GuestPgBench(Guests("FATAL: could not bind\n", code=4), spec_of(4)).run(CLIENT, 10, seed=5)
    with pytest.raises(ClusterError, match="not run to its end"):
        measured_part(SAID.partition("CEPHFIT-FINISHED")[0])
    with pytest.raises(ClusterError, match="the database was not created"):
        GuestPgBench(Guests("mkfs\n"), spec_of(4)).prepare(CLIENT)


@pytest.mark.parametrize("scale", [1, 4, 10, 30, 100])
def test_a_database_is_larger_than_its_memory_or_has_the_minimum_memory(scale: int) -> None:
    spec = spec_of(scale)
    assert spec.scale == scale
    assert spec.memory_limit_nbytes <= max(64 * MIB, scale * 15 * MIB)
    assert spec.max_wal_nbytes % (32 * MIB) == 0
    assert spec.database_nbytes <= PgBenchSpec(scale=max(30, scale)).database_nbytes


def test_the_script_is_valid_and_sets_all_required_variables() -> None:
    script = script_of(spec_of(4), CLIENT, "prepare", run_seconds=0, seed=1)
    subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=True)
    text = resources.files("cephfit.heat_templates").joinpath("pgbench.sh").read_text()
    wanted = {word.split("=")[0] for word in script.split() if word.startswith("CEPHFIT_") and "=" in word}
    used = {line.split()[1].rstrip(",") for line in text.splitlines() if line.startswith("#   CEPHFIT_")}
    assert {"CEPHFIT_DEVICE", "CEPHFIT_STEPS", "CEPHFIT_SCALE", "CEPHFIT_MEMORY", "CEPHFIT_WAL"} <= wanted & used


def test_a_volume_is_warmed_for_its_own_client() -> None:
    guests, other = Guests(SAID), replace(CLIENT, name="c1")
    workload = GuestPgBench(guests, spec_of(4))
    workload.warm(CLIENT)
    workload.run(other, 10, seed=5)
    workload.run(CLIENT, 10, seed=5)
    assert ["CEPHFIT_STEPS='warm run'" in script for script in guests.scripts] == [False, True]


def test_several_guests_run_at_once_each_with_its_seed() -> None:
    guests = Guests(SAID)
    clients = [replace(CLIENT, name=f"c{i}") for i in range(3)]
    results = GuestPgBench(guests, spec_of(4)).run_together(clients, 10, seeds=[5, 6, 7])
    assert [value for value, _ in results] == [14.328820] * 3
    assert guests.n_sent == [3], "one job for all, which begin at the same moment"
    for seed, script in zip((5, 6, 7), guests.scripts, strict=True):
        assert f"export CEPHFIT_SEED={seed}\n" in script
    assert [evidence["seed"] for _, evidence in results] == [5, 6, 7]


def test_the_stored_identity_of_pgbench_changes_with_its_version_only() -> None:
    assert PgBenchSpec().description() == {
        "version": 2,
        "scale": 30,
        "clients": 8,
        "warmup_seconds": 4.0,
        "memory_limit_nbytes": 268435456,
        "shared_buffers_nbytes": 134217728,
        "max_wal_nbytes": 805306368,
        "script": "tpcb-like",
        "settings": {
            "autovacuum": "off",
            "bgwriter_lru_maxpages": "0",
            "checkpoint_timeout": "1h",
            "jit": "off",
            "huge_pages": "off",
            "backend_flush_after": "64kB",
        },
    }
