"""Formats are detected by content, unknown content is described, and no input breaks a reader."""

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_blkparse_text import TEXT
from test_delimited import DELIMITED
from test_fio_iolog import VERSION_3
from test_more_formats import BIOSNOOP, QEMU_LOG, STRACE, TRACE_CMD, XPERF, rbd_replay
from test_printed_completions import IOSNOOP, VALIDATE
from test_vscsi import CSV, TWO, histogram_csv, record_1, record_2
from trace_maker import Event, mixed_workload, packed, write

from cephfit.core.errors import InputError
from cephfit.traces import formats, profile_files
from cephfit.traces.access_source import AccessSource
from cephfit.traces.recordings import ReadOptions

BLOCK_EVENTS = TRACE_CMD.replace("block_rq_issue:  ", "block_bio_queue: ")
BLOCK_EVENTS = BLOCK_EVENTS.replace(" 4096 ()", "").replace(" 8192 ()", "")

WHOLE = {
    "blktrace": packed(mixed_workload(20)),
    "blktrace-8": packed(mixed_workload(20), version=8),
    "blkparse": TEXT.encode(),
    "vscsi-csv": CSV.encode(),
    "vscsi-binary": b"".join(record_1(0x28 + 2 * (i % 2), 8 * i) for i in range(20)),
    "vscsi-binary-2": b"".join(record_2(0x28 + 2 * (i % 2), 8 * i) for i in range(20)),
    "vscsi-histogram": histogram_csv(TWO).encode(),
    "fio-iolog": VERSION_3.encode(),
    "biosnoop": BIOSNOOP.encode(),
    "block-events": BLOCK_EVENTS.encode(),
    "qemu": QEMU_LOG.encode(),
    "strace": STRACE.encode(),
    "xperf": XPERF.encode(),
    "iosnoop": IOSNOOP.encode(),
    "disksim-validate": VALIDATE.encode(),
    "rbd-replay": rbd_replay(),
    **{name: text.encode() for name, text in DELIMITED.items()},
}


@pytest.mark.parametrize("name", WHOLE)
def test_the_format_is_detected_by_content(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a name without meaning"
    path.write_bytes(WHOLE[name])
    found = profile_files([path])
    assert found.description["sources"][0]["format"] == name.removesuffix("-8").removesuffix("-2")
    assert found.n_accesses > 0


@pytest.mark.parametrize(
    ("content", "looks"),
    [
        (b"", "the trace is empty"),
        (b"hello\nworld\n" * 99, "looks like text that begins with 'hello'"),
        (b"\x7fELF" + bytes(range(256)), "is a program"),
        (bytes(range(256)) * 3, "looks like binary data that begins with 00 01 02"),
        (b"\x28\xb5\x2f\xfd\0\1\2", "damaged or cut off"),
        (b"\xfd7zXZ\0\1\2", "damaged or cut off"),
    ],
)
def test_other_files_are_described(tmp_path: Path, content: bytes, looks: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        profile_files([path])
    assert looks in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(InputError) as caught:
        profile_files([tmp_path / "x"])
    assert all(name in caught.value.remedy for name in formats.titles())


def test_files_of_different_formats_are_rejected(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw", [Event(1)])
    text = tmp_path / "text"
    text.write_text(TEXT)
    with pytest.raises(InputError, match="different formats"):
        profile_files([raw, text])


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        profile_files([tmp_path / "none"])


def test_a_damaged_gzip_file_names_the_position(tmp_path: Path) -> None:
    import gzip

    whole = gzip.compress(packed(mixed_workload(2000)))
    (tmp_path / "t.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"damaged or cut off") as caught:
        profile_files([tmp_path / "t.gz"])
    assert "decompressed byte" in caught.value.where


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(sorted(WHOLE)),
    st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), max_size=8),
    st.integers(0, 1 << 30),
    st.booleans(),
    st.binary(max_size=40),
)
def test_any_damage_gives_a_profile_or_a_clear_error(
    tmp_path: Path, name: str, changes: list[tuple[int, int]], cut: int, is_cut: bool, appended: bytes
) -> None:
    content = bytearray(WHOLE[name])
    for place, byte in changes:
        content[place % len(content)] = byte
    if is_cut:
        content = content[: cut % len(content)]
    path = tmp_path / "fuzzed"
    path.write_bytes(bytes(content) + appended)
    try:
        found = profile_files([path])
    except InputError as error:
        assert str(path) in str(error)
    else:
        assert found.loads(found.dumps()).n_accesses == found.n_accesses


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(formats.titles())), st.binary(max_size=300))
def test_garbage_read_as_a_given_format_gives_a_clear_error(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / "garbage"
    path.write_bytes(content)
    try:
        profile_files([path], format_name=name)
    except InputError as error:
        assert str(path) in str(error)


def test_truncation_at_every_byte_of_a_binary_trace(tmp_path: Path) -> None:
    """The trace is whole only if it ends with a record."""
    content = b"".join(struct.pack("<IIIHHQQ", 1, 4096, 1, 0x28, 0x0100, i, i) for i in range(4))
    path = tmp_path / "t"
    for n in range(33, len(content)):
        path.write_bytes(content[:n])
        if n % 32:
            with pytest.raises(InputError, match="cut off"):
                profile_files([path])
        else:
            assert profile_files([path]).n_accesses == n // 32


@pytest.mark.parametrize("option", ["columns", "blkparse_format"])
def test_a_format_that_contradicts_another_option_is_rejected(tmp_path: Path, option: str) -> None:
    trace = tmp_path / "t.csv"
    trace.write_bytes(b"1,R,4096,4096\n")
    value = {"columns": "time:us,op,offset,length", "blkparse_format": "%T.%t,%a,%S,%n\\n"}[option]
    options = ReadOptions(**{option: value})
    for read in (profile_files, lambda paths, **how: list(AccessSource(paths, **how))):
        with pytest.raises(InputError, match=r"--format names msr") as caught:
            read([trace], format_name="msr", options=options)  # type: ignore[operator]
        assert caught.value.where == "--format msr"
    assert options.format_with(options.format_name) == options.format_name


@pytest.mark.parametrize(
    ("content", "command"),
    [
        (b'{\n  "fio version" : "fio-3.6",\n', "cephfit import"),
        (b'# TYPE ceph_rbd_read_ops counter\nceph_rbd_read_ops{pool="vms"} 1\n', "cephfit survey"),
        (b"configuration,size,pattern,client,run,iops\nA,4K,read,0,1,9\n", "cephfit map --baselines"),
        (b"Device  r/s  rkB/s  w/s  wkB/s\nsda  1.0 8.0 2.0 16.0\n", "cephfit trace capture"),
        (b'{"schema_version": 2, "random_threshold_lbn": 128}', "cephfit map"),
    ],
)
def test_a_file_of_another_kind_names_the_command_that_reads_it(
    tmp_path: Path, content: bytes, command: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError) as refused, formats.TraceStream(path) as stream:
        formats.format_of(stream)
    assert f"`{command}" in refused.value.remedy
