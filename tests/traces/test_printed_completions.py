"""Traces of completions: blkparse with C events only, perf-tools' iosnoop, DiskSim's validation format."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from test_more_formats import counts, nbytes, profiled
from test_requeues import BLKPARSE_LINE, TRACEPOINT, as_text, given_back
from trace_maker import C, Event, mixed_workload, packed

from cephfit.cli.trace.trace_commands import command as trace_command
from cephfit.core.errors import InputError
from cephfit.traces import formats
from cephfit.traces.columns import OP_READ, OP_WRITE, AccessBatch
from cephfit.traces.counting.demand_counts import DemandCounting
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.recordings import ReadOptions
from cephfit.traces.stream import TraceStream

IOSNOOP = """\
Tracing block I/O. Ctrl-C to end.
STARTs         ENDs           COMM             PID    TYPE DEV      BLOCK        BYTES     LATms
100.302061     100.302679     super vise       1809   W    202,1    17039600     4096       0.62
100.302000     100.312842     tar              14794  RM   202,1    8457608      8192      10.84
100.304962     100.305446     jbd2/vda1-212    212    FF   202,1    0            0          0.48
^C
Ending tracing...
"""
VALIDATE = "R Miss 1000 8 12000 1000.0\nW Hit 1008 16 500.5 2000\nR Miss 0 8 100 0\n"
DISKSIM_FLAGS = "0.5 0 1000 8 1\n1.25 0 1008 8 0\n2.5 0 3000 16 3\n3.5 1 3000 16 12\n"


def completions() -> list[Event]:
    return [e for e in mixed_workload(200) if e.what == C]


def only_completions() -> dict[str, bytes]:
    events = completions()
    return {
        "blktrace": packed(events),
        "blkparse": as_text(events, BLKPARSE_LINE).encode(),
        "block-events": as_text(events, TRACEPOINT).encode(),
    }


def read(tmp_path: Path, name: str, content: bytes, action: Action = Action.QUEUE) -> AccessBatch:
    path = tmp_path / "trace"
    path.write_bytes(content)
    reader = next(r for r in formats.readers(action) if r.name == name)
    with TraceStream(path) as stream:
        assert reader.sniff(stream.head())
    return next(batch for batch in reader.batches(path) if len(batch))


@pytest.mark.parametrize("name", only_completions())
def test_completions_count_as_accesses_at_their_times(tmp_path: Path, name: str) -> None:
    events = completions()
    found = read(tmp_path, name, only_completions()[name], Action.COMPLETE)
    np.testing.assert_array_equal(found.lbn, [e.sector for e in events])
    np.testing.assert_array_equal(found.nbytes, [e.nbytes for e in events])
    np.testing.assert_allclose(np.diff(found.time_ns), np.diff([e.time for e in events]), atol=1000)
    assert found.latency_ns is None


def test_a_trace_of_completions_states_that_it_has_no_latencies(tmp_path: Path) -> None:
    found = profiled(tmp_path, only_completions()["blkparse"], action=Action.COMPLETE)
    assert any(lack.startswith("latency and issue") for lack in found.description["lacks"])


def test_comments_above_blkparse_text(tmp_path: Path) -> None:
    plain = as_text(given_back(20), BLKPARSE_LINE)
    commented = "# host a, 2024-05-01\n#blkparse sda\n\n" + plain
    found = profiled(tmp_path, commented, action=Action.ISSUE)
    assert found.to_json() == profiled(tmp_path, plain, action=Action.ISSUE).to_json()


def test_the_terminal_names_the_counted_action_and_disk(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    trace.write_text(as_text(given_back(20), BLKPARSE_LINE))
    result = CliRunner().invoke(trace_command, ["profile", str(trace), "--action", "D"])
    assert "counted: action D, issued to the disk; disk 8,0" in result.stdout.splitlines()


def test_iosnoop_with_both_times(tmp_path: Path) -> None:
    found = read(tmp_path, "iosnoop", IOSNOOP.encode())
    assert found.time_ns.tolist() == [100_302_000_000, 100_302_061_000]
    assert found.op.tolist() == [OP_READ, OP_WRITE]
    assert found.lbn.tolist() == [8457608, 17039600]
    assert found.nbytes.tolist() == [8192, 4096]
    assert [found.disks[d] for d in found.disk] == ["202,1", "202,1"]
    assert found.latency_ns is not None and found.latency_ns.tolist() == [10_840_000, 620_000]
    assert found.outstanding is not None and found.outstanding.tolist() == [0, 1]
    assert profiled(tmp_path, IOSNOOP).description["skipped"] == {"flush": 1}


def test_iosnoop_with_the_end_only_has_the_issue_from_the_latency(tmp_path: Path) -> None:
    text = "ENDs COMM PID TYPE DEV BLOCK BYTES LATms\n5.500000 dd 1 R 8,0 8 4096 100.00\n"
    assert read(tmp_path, "iosnoop", text.encode()).time_ns.tolist() == [5_400_000_000]


def test_iosnoop_without_times_has_latencies_and_says_what_it_lacks(tmp_path: Path) -> None:
    text = "COMM PID TYPE DEV BLOCK BYTES LATms\ndd 1 R 8,0 8 4096 1.00\ndd 1 R 8,0 800 4096 2.00\n"
    found = profiled(tmp_path, text)
    assert counts(found) == (2, 0)
    assert sum(found.description["histograms"]["latency_us"]["all"]["counts"]) == 2
    assert "iops" not in found.description
    assert found.description["lacks"][0].startswith("time: no rates")


def peak_nbytes(tmp_path: Path, head: str, line: str, n: int, options: ReadOptions) -> int:
    """Return the peak of memory while ``n`` lines are read and their demands counted."""
    path = tmp_path / "trace"
    path.write_text(head + "".join(line.format(lbn=8 * (i % 9973)) for i in range(n)))
    reader = next(r for r in formats.readers(options=options) if r.name == (options.format_name or "iosnoop"))
    tracemalloc.start()
    counting, n_read = DemandCounting(), 0
    for batch in reader.batches(path):
        counting.add(batch)
        n_read += len(batch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n_read == n
    return peak


@pytest.mark.slow
def test_iosnoop_without_times_takes_memory_that_does_not_grow(tmp_path: Path) -> None:
    head = "COMM PID TYPE DEV BLOCK BYTES LATms\n"
    line = "supervise-of-a-long-name 1809 W 202,1 {lbn} 4096 10.84\n"
    options = ReadOptions()
    peak_nbytes(tmp_path, head, line, 100, options)  # loads the loops
    few, many = (peak_nbytes(tmp_path, head, line, n, options) for n in (200_000, 600_000))
    assert many < few + (4 << 20)  # 400,000 accesses that wait would take 16 MB


def test_iosnoop_of_another_run_below_the_first_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the columns of the first header") as caught:
        profiled(tmp_path, IOSNOOP + "COMM PID TYPE DEV BLOCK BYTES LATms\n")
    assert "line 8" in caught.value.where


def test_disksim_validation_times_follow_from_service_and_gap(tmp_path: Path) -> None:
    found = read(tmp_path, "disksim-validate", VALIDATE.encode())
    assert found.time_ns.tolist() == [0, 13_000_000, 15_500_500]  # 12000 + 1000 us; 500.5 + 2000 us
    assert found.latency_ns is not None and found.latency_ns.tolist() == [12_000_000, 500_500, 100_000]
    assert found.op.tolist() == [OP_READ, OP_WRITE, OP_READ]
    assert found.outstanding is not None and not found.outstanding.any()


def test_disksim_flags_beyond_read(tmp_path: Path) -> None:
    found = profiled(tmp_path, DISKSIM_FLAGS)
    assert counts(found) == (2, 2)
    assert nbytes(found) == (4096 + 8192, 4096 + 8192)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("text", [IOSNOOP, VALIDATE, DISKSIM_FLAGS])
def test_dos_line_ends_and_a_byte_order_mark_change_nothing(tmp_path: Path, text: str, mark: bytes) -> None:
    windows = profiled(tmp_path, mark + text.replace("\n", "\r\n").encode())
    assert windows.to_json() == profiled(tmp_path, text).to_json()


def test_text_beyond_latin_is_named_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="looks like text that begins with 'Zeit – Gerät „a“'"):
        profiled(tmp_path, "Zeit – Gerät „a“\r\nno trace\r\n")


def test_a_bare_list_of_blocks_names_the_columns_that_read_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--columns offset:lbn,op=read,length=4096"):
        profiled(tmp_path, "1000\r\n1008\r\n20\r\n")
