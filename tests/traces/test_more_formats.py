"""Formats with dedicated line parsers; the examples were written by hand from the sources named."""

import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from cephfit.cli.trace.trace_commands import command
from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.core.values.profile import Profile
from cephfit.traces import profile_files
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.recordings import ReadOptions

GOLDEN = Path(__file__).parent / "golden"

BIOSNOOP = """\
TIME(s)     COMM           PID    DISK    T SECTOR     BYTES   LAT(ms)
0.000004    supervise      1950   xvda1   W 13092560   4096       0.74
0.000178    Web Content    1950   xvda1   R 13092432   8192       0.61
2.004204    kworker/0:3    26040  xvdb    W 41950344   65536      0.34
"""
"""From bcc's tools/biosnoop_example.txt, one name changed."""

BIOSNOOP_LIBBPF = """\
TIME(s)     COMM           PID     DISK    T    SECTOR     BYTES   QUE(ms) LAT(ms)
0.000000    kworker/u72:1  13379   nvme1n1 WS   1142400    4096      0.010   0.550
0.000771    sync           22177   nvme1n1 RA   41963894   3072     -1.000   0.470
0.000900    sync           22177   nvme1n1 FF   0          0         0.010   0.170
0.001000    fstrim         22177   nvme1n1 D    4096       1048576   0.010   0.170
"""
"""By hand from libbpf-tools/biosnoop.c."""

TRACE_CMD = """\
version = 7
cpus=2
              dd-1234  [000] ..... 100.000100: block_rq_issue:       8,0 WS 4096 () 16573296 + 8 [dd]
          <idle>-0     [001] d.h.. 100.000300: block_rq_complete:    8,0 WS () 16573296 + 8 [0]
              dd-1234  [000] ..... 100.000400: block_rq_issue:       8,0 R 8192 () 2048 + 16 be,0,4 [my prog]
              dd-1234  [000] ..... 100.000450: block_rq_issue:       8,0 FF 0 () 18446744073709551615 + 0 [dd]
              dd-1234  [000] ..... 100.000460: block_rq_issue:       8,0 N 36 (12 00 00 00 24 00) 0 + 0 [udevd]
              dd-1234  [000] ..... 100.000470: block_rq_issue:       8,0 DS 1048576 () 4096 + 2048 [fstrim]
              dd-1234  [000] ..... 100.000480: sched_switch:         prev_comm=dd
"""
"""By hand from include/trace/events/block.h, before and after the priority came."""

QEMU_LOG = """\
27960@1577808144.360767:blk_co_preadv blk 0x55aa bs 0x55bb offset 4096 bytes 8192 flags 0x0
27960@1577808144.360769:bdrv_co_preadv bs 0x55bb offset 4096 bytes 8192 flags 0x0
27960@1577808145.360767:blk_co_pwritev blk 0x55aa bs 0x55bb offset 12288 bytes 65536 flags 0x0
"""
QEMU_SIMPLE = """\
blk_co_preadv 0.000 pid=27960 blk=0x55aa bs=0x55bb offset=0x1000 bytes=0x2000 flags=0x0
bdrv_co_preadv 0.500 pid=27960 bs=0x55bb offset=0x1000 bytes=0x2000 flags=0x0
blk_co_pwritev 999999.500 pid=27960 blk=0x55aa bs=0x55bb offset=0x3000 bytes=0x10000 flags=0x0
"""
XPERF = """\
BeginHeader
               DiskRead,  TimeStamp,     Process Name ( PID),   ThreadID,             IrpPtr,   ByteOffset, \
    IOSize, ElapsedTime,  DiskNum, IrpFlags, DiskSvcTime, I/O Pri,  VolSnap,         FileObject, FileName
EndHeader
OS Version: 10.0.19041, Trace Size: 1KB, Events Lost: 0
               DiskRead,     723291, p0 (11008),      12260, 0xfffffade691b3010, 0x4e5ec22e00, 0x00002000,        \
4388,        4, 0x000901,        4388,       0,  Unknown, 0xfffffade6bd7d7a0, "Disk6"
              DiskWrite,    1723291, a, b (12),      12260, 0xfffffade691b3010, 0x4e5ec24e00, 0x00010000,        \
500,        4, 0x000901,        400,       0,  Unknown, 0xfffffade6bd7d7a0, "Disk6"
              DiskFlush,    1723299, p0 (11008),      12260, 0xfffffade691b3010,  20,        4, 0x0, 20, 0
                CSwitch,    1723300, whatever, 1, 2
"""
"""The DiskRead is a real row, as a public parser's test quotes it."""


def _action(kind: int, number: int, *waits: tuple[int, int], rest: bytes = b"", order: str = "<") -> bytes:
    body = struct.pack(f"{order}BIQ", kind, number, 7)
    if order == ">":
        body += struct.pack("II", 0, 0)
    body += struct.pack(f"{order}I", len(waits)) + b"".join(struct.pack(f"{order}IQ", *w) for w in waits) + rest
    return body if order == ">" else struct.pack("<BBI", 1, 1, len(body)) + body


def rbd_replay(order: str = "<") -> bytes:
    """A thread opens an image, reads 8 KiB, and a second after that is complete writes 64 KiB."""
    q = f"{order}QQQ"
    name = struct.pack(f"{order}Q", 3) + struct.pack(f"{order}I", 3) + b"vm1" + struct.pack(f"{order}I", 0) + b"\0"
    return (b"rbd-replay-trace" if order == "<" else b"") + b"".join(
        (
            _action(0, 0, order=order),
            _action(6, 2, (0, 0), rest=name, order=order),
            _action(4, 4, (2, 1000), rest=struct.pack(q, 3, 4096, 8192), order=order),
            _action(5, 6, (5, 1_000_000_000), rest=struct.pack(q, 3, 12288, 65536), order=order),
            _action(1, 8, (6, 0), order=order),
        )
    )


ORACLE = b"".join(struct.pack("<IQIq", 100 + i, 8 * i, 4096, -1 if i % 2 else i + 7) for i in range(10))

STRACE = """\
100 23:59:59.900000 openat(AT_FDCWD, "disk.img", O_RDWR) = 3 <0.000010>
100 23:59:59.950000 lseek(3, 4096, SEEK_SET) = 4096 <0.000001>
100 23:59:59.999000 read(3, "\\0) = 5"..., 65536) = 8192 <0.000050>
100 00:00:00.999000 write(3, "x"..., 65536 <unfinished ...>
101 00:00:00.999100 pread64(3,  <unfinished ...>
100 00:00:00.999200 <... write resumed>) = 65536 <0.000200>
101 00:00:00.999300 <... pread64 resumed>"abc"..., 4096, 1048576) = 512 <0.000200>
101 00:00:00.999400 read(3, 0x7f, 10) = -1 EIO (Input/output error) <0.000200>
"""

TEXTS = {
    "biosnoop": BIOSNOOP,
    "block-events": TRACE_CMD,
    "qemu": QEMU_LOG,
    "xperf": XPERF,
    "strace": STRACE,
}


def profiled(tmp_path: Path, content: str | bytes, **how: object) -> Profile:
    path = tmp_path / "t"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return profile_files([path], **how)  # type: ignore[arg-type]


def counts(found: Profile) -> tuple[int, int]:
    return sum(found.accesses[Op.READ].values()), sum(found.accesses[Op.WRITE].values())


def nbytes(found: Profile) -> tuple[int, int]:
    return found.description["nbytes"]["read"], found.description["nbytes"]["write"]


def format_of(found: Profile) -> str:
    return str(found.description["sources"][0]["format"])


def test_biosnoop_times_are_of_completion(tmp_path: Path) -> None:
    found = profiled(tmp_path, BIOSNOOP)
    assert format_of(found) == "biosnoop"
    assert counts(found) == (1, 2)
    assert nbytes(found) == (8192, 69632)
    assert list(found.description["disks"]) == ["xvda1", "xvdb"]
    assert found.description["percentiles"]["latency_us"]["read"]["p50"] == pytest.approx(610, rel=0.04)
    # issued at -0.736 ms (the first) and at 2.003864 s (the last)
    assert found.description["duration_seconds"] == pytest.approx(2.003864 + 0.000736)


def test_biosnoop_of_libbpf_has_flags_and_a_queue_time(tmp_path: Path) -> None:
    found = profiled(tmp_path, BIOSNOOP_LIBBPF)
    assert counts(found) == (1, 1)
    assert found.description["skipped"] == {"discard": 1, "flush": 1}


@pytest.mark.parametrize("queued", [False, True])
def test_biosnoop_with_the_pattern_of_each_access(tmp_path: Path, queued: bool) -> None:
    """``biosnoop -P``, with and without ``-Q``: by hand from bcc's tools/biosnoop.py, which prints bytes of 7
    digits and the pattern without a blank between."""
    queue = f"{0.01:7.2f} " if queued else ""
    text = f"TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  P {'QUE(ms) ' * queued}LAT(ms)\n"
    for length, pattern in ((4096, "S"), (1048576, "R"), (8192, "?")):
        row = ("0.000004", "supervise", 1950, "xvda1", "W", 13092560, length)
        text += "{:<11} {:<14} {:<7} {:<9} {:<1} {:<10} {:<7}".format(*row) + f"{pattern} {queue}{0.74:7.2f}\n"
    found = profiled(tmp_path, text)
    assert format_of(found) == "biosnoop"
    assert counts(found) == (0, 3)
    assert nbytes(found) == (0, 4096 + 8192 + 1048576)
    assert found.description["percentiles"]["latency_us"]["all"]["p50"] == pytest.approx(740, rel=0.04)


@pytest.mark.parametrize(
    "header",
    ["TIME(ms)     COMM             PID    LAT(ms)", "TIME(ms)     DISK    COMM             PID    LAT(ms)"],
)
def test_biosnoop_of_bpftrace_is_refused_with_a_hint(tmp_path: Path, header: str) -> None:
    """Older and newer versions of bpftrace's tools/biosnoop.bt."""
    with pytest.raises(InputError, match="neither place nor size") as caught:
        profiled(tmp_path, f"Attaching 4 probes...\n{header}\n1 dd 5 2\n")
    assert "bcc" in caught.value.remedy


def test_trace_cmd_with_and_without_priority(tmp_path: Path) -> None:
    found = profiled(tmp_path, TRACE_CMD, action=Action.ISSUE)
    assert counts(found) == (1, 1)
    assert found.description["skipped"] == {"discard": 1, "flush": 1, "passthrough": 1}
    assert found.description["percentiles"]["latency_us"]["write"]["p50"] == pytest.approx(200, rel=0.04)


def test_the_error_for_a_missing_action_names_the_actions_present(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no read or write with action Q") as caught:
        profiled(tmp_path, TRACE_CMD)
    assert "--action D" in caught.value.remedy


def test_strace_follows_the_position_through_lseek_dup_and_fork(tmp_path: Path) -> None:
    """65536: write 1024, write 1024, write 1024 by a duplicate, 512 by a child: one after the other."""
    text = (GOLDEN / "st_tt.txt").read_text()
    begin = next(i for i, line in enumerate(text.splitlines()) if "lseek(3, 65536" in line)
    kept = [line for line in text.splitlines() if "file.bin" in line][:1] + text.splitlines()[begin:]
    found = profiled(tmp_path, "\n".join(kept) + "\n", disks=["file.bin"])
    distance = found.description["histograms"]["distance"]["write"]
    assert distance["counts"][distance["limits"].index(1)] == 3


def test_strace_over_midnight_with_what_was_returned(tmp_path: Path) -> None:
    found = profiled(tmp_path, STRACE)
    assert counts(found) == (2, 1)
    assert nbytes(found) == (8192 + 512, 65536)
    assert found.description["duration_seconds"] == pytest.approx(1.0001)
    assert found.description["skipped"] == {"failed": 1}
    distance = found.description["histograms"]["distance"]["all"]
    assert distance["counts"][distance["limits"].index(1)] == 1  # the write begins where the read returned


def test_sync_file_range_of_strace_is_no_flush(tmp_path: Path) -> None:
    """PostgreSQL calls it after every 64 writes of a checkpoint. The disk's cache is not flushed."""
    text = """\
1700000000.000000 openat(AT_FDCWD, "/f", O_RDWR) = 3 <0.000010>
1700000000.100000 pwrite64(3, ""..., 8192, 0) = 8192 <0.000020>
1700000000.200000 sync_file_range(3, 0, 8192, SYNC_FILE_RANGE_WRITE) = 0 <0.000020>
1700000000.300000 fdatasync(3) = 0 <0.000020>
"""
    found = profiled(tmp_path, text, demands=True)
    assert found.description["skipped"] == {"flush": 1, "writeback": 1}
    assert found.commits is not None
    assert found.commits.flushes == 1


def test_strace_with_a_clock_of_whole_seconds_is_reported(tmp_path: Path) -> None:
    text = '12:00:01 open("f", O_RDWR) = 3\n12:00:02 read(3, "", 512) = 512\n'
    assert any("whole seconds" in missing for missing in profiled(tmp_path, text).description["lacks"])


def test_strace_of_a_file_opened_earlier_has_no_place(tmp_path: Path) -> None:
    text = "read(9, 0x1, 10) = 10\nlseek(9, 0, SEEK_SET) = 0\nread(9, 0x1, 4096) = 4096\n"
    found = profiled(tmp_path, text)
    assert counts(found) == (1, 0)
    assert list(found.description["skipped"].values()) == [1]


@pytest.mark.parametrize(("order", "version"), [("<", 1), (">", 0)])
def test_rbd_replay(tmp_path: Path, order: str, version: int) -> None:
    """Written by hand from Ceph's ActionTypes.cc."""
    found = profiled(tmp_path, rbd_replay(order))
    assert format_of(found) == "rbd-replay"
    assert counts(found) == (1, 1)
    assert nbytes(found) == (8192, 65536)
    assert list(found.description["disks"]) == ["vm1"]
    assert found.description["duration_seconds"] == pytest.approx(1.0)
    assert found.description["lacks"][0].startswith("time: none")


def test_rbd_replay_of_the_other_byte_order_is_named(tmp_path: Path) -> None:
    swapped = rbd_replay()[:16] + struct.pack(">BBI", 1, 1, 17) + rbd_replay()[22:]
    with pytest.raises(InputError, match="bytes are impossible") as caught:
        profiled(tmp_path, swapped)
    assert caught.value.where.endswith("byte 16")
    assert "byte order" in caught.value.remedy


@pytest.mark.parametrize("text", [QEMU_LOG, QEMU_SIMPLE])
def test_qemu_times(tmp_path: Path, text: str) -> None:
    found = profiled(tmp_path, text)
    assert counts(found) == (1, 1)
    assert nbytes(found) == (8192, 65536)
    assert found.description["duration_seconds"] == pytest.approx(1.0)


def test_xperf(tmp_path: Path) -> None:
    found = profiled(tmp_path, XPERF)
    assert format_of(found) == "xperf"
    assert counts(found) == (1, 1)
    assert nbytes(found) == (8192, 65536)
    assert found.description["duration_seconds"] == pytest.approx((1723291 - 500 - 723291 + 4388) / 1e6)
    assert found.description["skipped"] == {"flush": 1}
    distance = found.description["histograms"]["distance"]["all"]
    assert distance["counts"][distance["limits"].index(1)] == 1


def test_oracle_general_needs_an_op(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not distinguish reads from writes") as caught:
        profiled(tmp_path, ORACLE)
    assert "--assume-op" in caught.value.remedy
    found = profiled(tmp_path, ORACLE, options=ReadOptions(assume_op=Op.READ))
    assert counts(found) == (10, 0)
    assert found.description["lacks"][0].startswith("op: every access counts as a read")


def test_oracle_general_with_an_invalid_record(tmp_path: Path) -> None:
    bad = ORACLE * 300 + struct.pack("<IQIq", 1, 2, 3, 5)
    with pytest.raises(InputError, match="not an oracleGeneral record") as caught:
        profiled(tmp_path, bad, format_name="oracle-general", options=ReadOptions(assume_op=Op.READ))
    assert "record 10 (byte 240)" in caught.value.where


@pytest.mark.parametrize("name", TEXTS)
def test_other_data_after_the_trace_is_named_by_its_line(tmp_path: Path, name: str) -> None:
    other = "\x01\x02 and then another file 7 7 7\n" * 200
    with pytest.raises(InputError) as caught:
        profiled(tmp_path, TEXTS[name] + other, action=Action.ISSUE)
    assert caught.value.where == f"{tmp_path / 't'}, line {TEXTS[name].count(chr(10)) + 1}"


def test_the_terminal_shows_what_a_trace_lacks(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(ORACLE)
    shown = CliRunner().invoke(command, ["profile", str(tmp_path / "t"), "--assume-op", "write"])
    assert shown.exit_code == 0, shown.output
    assert "the trace does not contain: op: every access counts as a write" in shown.output
