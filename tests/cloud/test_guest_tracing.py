"""Traces that guests take of themselves: what their jobs are given, and what is made of their answers."""

import gzip
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cephfit.cloud.guests.guest_tracing import GuestTrace, functions, taken_apart
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import Client
from cephfit.lab.workloads.pgbench import GuestPgBench, spec_of
from cephfit.traces.capturing.capture import file_of, keep
from cephfit.traces.profiling import profile_files

pytest.importorskip("openstack", reason="needs the extra openstack")

from cephfit.cloud.guests.guest_jobs import SIGNAL, Answers, JobResult

# From a guest of the lab, whose volume is 254:16.
EVENTS = """\
t-1 [000] 25.196008: block_bio_queue: 254,16 R 7904 + 24 []
t-1 [000] 25.208262: block_rq_complete: 254,16 R () 7904 + 24 []
t-1 [000] 25.218166: block_bio_queue: 254,16 WS 97024 + 88 []
t-1 [000] 25.299999: block_rq_complete: 254,16 WS () 97024 + 88 []
"""
RUN = f"""\
CEPHFIT-STARTED 1795287058.158834
tps = 14.328820 (without initial connection time)
CEPHFIT-FINISHED 1795287069.913743
CEPHFIT-TRACE-BEGIN 3
{EVENTS}CEPHFIT-TRACE-END
CEPHFIT-DATABASE-NBYTES 70688103
CEPHFIT-SERVER 15.20
"""
CLIENT = Client("c0", {"filename": "/dev/cephfit-volume"}, 1 << 30)


class Guests:
    """Guests that print what a test gives them."""

    def __init__(self, output: str) -> None:
        self.output = output
        self.scripts: list[str] = []

    def run_guest_jobs(self, clients: Sequence[Client], scripts: Mapping[str, str], *, seconds: float) -> Answers:
        (client,) = clients
        self.scripts.append(scripts[client.name])
        return Answers({client.name: JobResult(self.output, "", 0.0, 1.0, 0, SIGNAL)}, 0.0, {client.name: None})


def test_a_job_that_is_traced_has_the_functions_before_it_and_its_trace_apart() -> None:
    guests, traces = Guests("CEPHFIT-PREPARED 1\n"), list[GuestTrace]()
    workload = GuestPgBench(guests, spec_of(4), collect=traces.append)
    workload.prepare(CLIENT)
    guests.output = RUN
    tps, evidence = workload.run(CLIENT, 10, seed=5)
    assert tps == 14.32882
    assert traces == [GuestTrace(EVENTS, 3)]
    assert "block_bio_queue" not in evidence["output"]
    assert evidence["database_nbytes"] == 70688103
    # How results come is known from the first answer; until then no more is printed than a console can show.
    preparing, running = guests.scripts
    assert f"-gt {16 << 10} ]" in preparing
    assert f"-gt {700 << 10} ]" in running
    for script in guests.scripts:
        subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=True)


def test_a_job_that_is_not_traced_has_no_such_functions() -> None:
    guests = Guests(RUN)
    GuestPgBench(guests, spec_of(4)).run(CLIENT, 10, seed=5)
    assert "trace_begin()" not in guests.scripts[0]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("CEPHFIT-TRACE-TOO-LARGE 2097152\n", "2048 KiB when packed"),
        ("CEPHFIT-TRACE-NONE the guest's kernel has no tracing folder\n", "no tracing folder"),
        (RUN.partition("CEPHFIT-TRACE-END")[0], "recorded no trace"),
    ],
)
def test_no_trace_is_an_error_that_says_why(output: str, words: str) -> None:
    with pytest.raises(ClusterError, match=words):
        taken_apart(output)


def test_what_a_guest_saw_is_a_trace_file_with_its_making_beside_it(tmp_path: Path) -> None:
    file = file_of(tmp_path, "c0")
    report = keep(EVENTS, 3, file, volume="/dev/cephfit-volume", seconds=11.75)
    assert gzip.decompress(file.read_bytes()).decode() == EVENTS
    assert (report.lost_events, report.files) == (3, (str(file),))
    assert '"lost_events": 3' in (tmp_path / "c0.capture.json").read_text()
    assert profile_files([file], name="guest").n_accesses == 2
    assert file_of(tmp_path / "pgbench", "c0") == tmp_path / "pgbench.events.gz"
    with pytest.raises(InputError, match="a trace exists here already"):
        file_of(tmp_path, "c0")


def test_functions_for_results_by_any_way_are_for_the_shell() -> None:
    for way in ("signal", "console", ""):
        subprocess.run(["/bin/sh", "-n"], input=functions(way), text=True, check=True)
