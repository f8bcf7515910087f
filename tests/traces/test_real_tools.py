"""Output of real tools (golden/), compared with the counts of the traced program."""

import pytest
from test_more_formats import GOLDEN, counts, format_of, nbytes

from cephfit.traces import profile_files
from cephfit.traces.readers.block_events.block_layer import Action


@pytest.mark.parametrize("name", ["biosnoop-libbpf.txt", "biosnoop-libbpf-queued.txt"])
def test_biosnoop_of_libbpf_tools_agrees_with_fio(name: str) -> None:
    """libbpf-tools 0.31 in a guest of Linux 6.12, without and with -Q. fio reported: 57 reads of 2,048,000
    bytes, 63 writes of 2,105,344 bytes."""
    found = profile_files([GOLDEN / name], disks=["vdb"])
    assert format_of(found) == "biosnoop"
    assert counts(found) == (57, 63)
    assert nbytes(found) == (2_048_000, 2_105_344)
    assert found.description["percentiles"]["latency_us"]["all"]["n"] == 120


def test_biosnoop_of_bcc_agrees_with_fio_in_the_reads_that_it_printed() -> None:
    """bcc 0.31 of the same load there: it printed none of the 63 writes."""
    found = profile_files([GOLDEN / "biosnoop-bcc-queued.txt"])
    assert counts(found) == (57, 0)
    assert nbytes(found) == (2_048_000, 0)
    assert "none of the writes" in found.description["notes"][0]


def test_perf_script_of_a_real_loop_device_agrees_with_fio() -> None:
    """perf 6.1 on Linux 6.18, which prints the I/O priority. fio reported: 30 reads of 1,826,816 bytes, 37
    writes of 2,379,776 bytes, through libaio, O_DIRECT."""
    found = profile_files([GOLDEN / "perf-script.txt"], action=Action.ISSUE)
    assert format_of(found) == "block-events"
    assert counts(found) == (30, 37)
    assert nbytes(found) == (1_826_816, 2_379_776)
    assert found.description["percentiles"]["latency_us"]["all"]["n"] == 67
    assert list(found.description["disks"]) == ["7,14"]


@pytest.mark.parametrize("action", Action)
def test_the_tracing_folders_text_of_a_real_loop_device_agrees_with_fio(action: Action) -> None:
    """Linux 6.18's own text. fio reported: 20 writes of 614,400 bytes; and 17 of the 65 reads are
    its own, the others those of blkdiscard, which sent one discard."""
    found = profile_files([GOLDEN / "ftrace.txt"], action=action)
    assert counts(found) == (65, 20)
    assert nbytes(found)[1] == 614_400
    assert found.description["skipped"] == {"discard": 1}
    assert found.description["events"] == {"Q": 86, "D": 86, "C": 86}


@pytest.mark.parametrize("name", ["trace-cmd.txt", "guest.blktrace.0"])
@pytest.mark.parametrize("action", Action)
def test_recordings_of_a_guest_agree_with_fio(name: str, action: Action) -> None:
    """trace-cmd 3.1.6 and blktrace 1.2.0 in a guest of Linux 6.1, of the same job on a virtio disk, 4 in flight.
    fio reported for both: 57 reads of 2,048,000 bytes, 63 writes of 2,105,344 bytes."""
    found = profile_files([GOLDEN / name], action=action)
    assert counts(found) == (57, 63)
    assert nbytes(found) == (2_048_000, 2_105_344)
    if action is Action.COMPLETE:
        assert "latency_us" not in found.description["percentiles"]
    else:
        assert found.description["percentiles"]["latency_us"]["all"]["n"] == 120


@pytest.mark.parametrize("name", ["st_tt.txt", "st_ttt.txt", "st_y.txt"])
def test_strace_of_one_program_in_three_forms(name: str) -> None:
    """The program writes 12 x 4096 by pwrite and 3 x 1024 + 512 by write; every byte that it wrote counts."""
    found = profile_files([GOLDEN / name])
    assert format_of(found) == "strace"
    disk = next(d for d in found.description["disks"] if d.endswith("file.bin"))
    only = profile_files([GOLDEN / name], disks=[disk])
    assert counts(only)[1] == 16
    assert nbytes(only)[1] == 12 * 4096 + 3 * 1024 + 512
    if name == "st_y.txt":
        assert any(missing.startswith("time") for missing in only.description["lacks"])
    else:
        assert only.description["percentiles"]["latency_us"]["write"]["n"] == 16


def test_the_output_of_rbd_replay_prep_has_every_traced_access() -> None:
    """rbd-replay-prep 16.2.15 of an LTTng trace. Two threads, an image each, called librbd's tracepoints for
    24 writes (up to 4 in flight) and 21 reads."""
    found = profile_files([GOLDEN / "rbd-replay.bin"])
    assert format_of(found) == "rbd-replay"
    assert counts(found) == (42, 48)
    assert nbytes(found) == (950_272, 933_888)
    assert list(found.description["disks"]) == ["volume-0", "volume-1"]


def test_qemu_counts_the_accesses_of_the_guest_and_no_lower_node() -> None:
    found = profile_files([GOLDEN / "qemu-io.txt"])
    assert format_of(found) == "qemu"
    assert counts(found) == (1, 2)
    assert nbytes(found) == (65536, 8192 + 4096)
    assert found.description["skipped"]["write zeroes"] == 1
    assert any(missing.startswith("time: none") for missing in found.description["lacks"])


def test_qemu_with_bdrv_events_only_counts_the_upper_node() -> None:
    found = profile_files([GOLDEN / "qemu-io-bdrv.txt"])
    assert counts(found) == (1, 1)
    assert len(found.description["left_out"]) == 1


def test_the_log_of_qemu_agrees_with_fio_in_the_guest() -> None:
    """QEMU 7.2 with ``-msg timestamp=on``, a qcow2 disk. fio in the guest reported: 28 reads of
    933,888 bytes, 32 writes of 1,126,400 bytes; the two other reads are of the disk that the guest booted from."""
    whole = profile_files([GOLDEN / "qemu-guest.txt"])
    assert counts(whole) == (30, 32)
    found = profile_files([GOLDEN / "qemu-guest.txt"], disks=["blk 0x55c3d21e5260"])
    assert counts(found) == (28, 32)
    assert nbytes(found) == (933_888, 1_126_400)
    assert found.description["duration_seconds"] == pytest.approx(0.638258)
