"""The records of the kernel's tracer are split by device."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cephfit.traces.capturing.blk_tracer import by_device, of_time
from cephfit.traces.readers.blktrace.blktrace_reader import DTYPES, MAGIC


def record(version: int, device: int, payload: bytes, sector: int) -> bytes:
    row = np.zeros(1, DTYPES[version])
    row["magic"], row["device"], row["pdu_len"], row["sector"] = MAGIC | version, device, len(payload), sector
    return bytes(row.tobytes() + payload)


@given(
    st.sampled_from(sorted(DTYPES)),
    st.lists(st.tuples(st.integers(1, 4), st.binary(max_size=80), st.integers(0, 2**63))),
)
def test_each_device_gets_its_own_records(version: int, rows: list[tuple[int, bytes, int]]) -> None:
    block = b"".join(record(version, *row) for row in rows)
    found = by_device(block, [1, 2, 3])
    assert found == {n: b"".join(record(version, *row) for row in rows if row[0] == n) for n in (1, 2, 3)}


def test_a_note_on_lost_events_belongs_to_each_device() -> None:
    note = b"CPU:1 [LOST 5 EVENTS]\n"
    one, two = record(7, 1, b"", 10), record(7, 2, b"tu", 20)
    assert by_device(one + note + two, [1, 2]) == {1: one + note, 2: note + two}


@given(st.sampled_from(sorted(DTYPES)), st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=80))))
def test_the_records_of_a_time_are_kept_with_all_notes_on_lost_events(
    version: int, rows: list[tuple[int, bytes]]
) -> None:
    note = b"CPU:1 [LOST 5 EVENTS]\n"
    records = [(time, timed(version, time, payload)) for time, payload in rows]
    found = of_time(note + b"".join(record for _, record in records), 3, 6)
    assert found == note + b"".join(record for time, record in records if 3 <= time <= 6)


def timed(version: int, time: int, payload: bytes) -> bytes:
    row = np.zeros(1, DTYPES[version])
    row["magic"], row["time"], row["pdu_len"] = MAGIC | version, time, len(payload)
    return bytes(row.tobytes() + payload)
