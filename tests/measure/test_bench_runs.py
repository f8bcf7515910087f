"""Ceph's own benchmarks: interrupted, tried, and what becomes of a trial that cannot be (without a cluster)."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from interrupts import Interrupted, interrupt_when, started_by_us

from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client
from cephfit.core.units import MIB
from cephfit.core.values.cells import Cell
from cephfit.measure.bench_process import run_together
from cephfit.measure.engine import CellRun
from cephfit.measure.rbd_bench import RbdBenchEngine
from cephfit.sweep.sweep_plan import Sweep

RBD = """#!/bin/sh
# As rbd 16.2 answers: what takes it less than a millisecond has no rate.
while [ $# -gt 0 ]; do
    [ "$1" = --io-total ] && total=$2
    shift
done
[ -n "${RBD_FAILS:-}" ] && { echo "rbd: error opening pool 'p': (2) No such file or directory" >&2; exit 2; }
echo "bench  type read io_size 4096 io_threads 4 bytes $total pattern random"
echo "  SEC       OPS   OPS/SEC   BYTES/SEC"
ops=$((total / 4096))
if [ $ops -lt 1000 ]; then
    echo "elapsed: 0   ops: $ops   ops/sec: inf   bytes/sec: 0 B/s"
else
    echo "elapsed: 1   ops: $ops   ops/sec: 1000   bytes/sec: 3.9 MiB/s"
fi
"""


def test_an_interrupt_does_not_wait_for_programs_that_run_side_by_side() -> None:
    others, commands = started_by_us(), {f"c{n}": ("sleep", "60") for n in range(2)}
    with interrupt_when(lambda: len(started_by_us() - others) >= 2) as interrupted_at:
        with pytest.raises(Interrupted):
            run_together(commands, timeout_seconds=60)
        assert time.monotonic() - interrupted_at[0] < 10
    assert started_by_us() <= others


@pytest.fixture
def scripted_rbd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "rbd"
    program.write_text(RBD)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.fixture
def run_of_rbd_bench(small_sweep: Sweep, scripted_rbd: None) -> CellRun:
    measurement = replace(small_sweep.measurement, run_seconds=1.0, iodepth=4)
    client = Client("c0", {"pool": "p", "rbdname": "i"}, 4 * MIB)
    return CellRun("A", Cell.parse("4K-randread"), 0, 0, measurement, [client], {"c0": 1})


def test_rbd_bench_tries_with_more_where_its_clock_saw_no_time(run_of_rbd_bench: CellRun) -> None:
    given = RbdBenchEngine().run(run_of_rbd_bench).clients["c0"]
    assert given.metrics is not None, given.failure
    assert given.metrics.iops == 1000


def test_what_rbd_bench_cannot_try_is_an_outcome_too(
    run_of_rbd_bench: CellRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBD_FAILS", "1")
    outcome = RbdBenchEngine().run(run_of_rbd_bench)
    assert outcome.clients["c0"].metrics is None
    assert "error opening pool" in outcome.clients["c0"].failure
    assert outcome.program == "rbd bench"
    with pytest.raises(ClusterError, match="error opening pool") as caught:
        RbdBenchEngine().prepare(run_of_rbd_bench)
    assert caught.value.where == "pool p, image i"
    assert caught.value.remedy
