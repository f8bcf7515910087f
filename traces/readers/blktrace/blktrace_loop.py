"""Compiled loop over blktrace's records, which merges the files by time and matches completions.

It is one pass from bytes to accesses with latencies. A version with columns of events in between was half as fast.
``Found`` counts records other than accesses: skipped records, lost events, and stacked devices.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.columns import FLUSH_LBN, LBN_MAX, PENDING, TIME_NS_MAX, UNKNOWN_LATENCY
from cephfit.traces.compiled import compiled_in_place, inlined
from cephfit.traces.lines.text_bytes import half, long, word
from cephfit.traces.matching.completion_loop import (
    N_KEYS,
    N_RELEASED,
    N_ROWS,
    NONE,
    SEEN_AT,
    Rows,
    Table,
    complete,
    complete_flush,
    complete_within,
    end_of,
    enter,
    latest_at,
    leave,
    place_of,
    take_back,
)

PASSTHROUGH, DISCARD, WRITE_ZEROES, ZONE_RESET, ZONE_RESET_ALL, ZONE_FINISH, ZONE_OPEN, ZONE_CLOSE = range(8)
FLUSH, ZERO_LENGTH, NO_SECTOR = range(8, 11)
REASONS = (
    "passthrough", "discard", "write zeroes", "zone reset", "zone reset all", "zone finish", "zone open",
    "zone close", "flush", "zero length", "no valid sector",
)  # fmt: skip
"""Why a record of the counted action is not an access."""

_FLUSH_BIT, _PASSTHROUGH_BIT, _DISCARD_BIT = 1 << 2, 1 << 9, 1 << 13
_FIRST_ZONE_BIT, _LAST_ZONE_BIT, _WRITE_ZEROES_BIT = 17, 21, 22
"""Categories (enum blktrace_cat). Categories from 16 exist only in records of version 8; 16 is a zone append,
which is a write."""
NO_DATA = _PASSTHROUGH_BIT | _DISCARD_BIT | (1 << _WRITE_ZEROES_BIT + 1) - (1 << _FIRST_ZONE_BIT)
"""Categories that carry no data, whatever length they state."""

N_ACTIONS = 32
MAX_CPUS = 1 << 13
"""The most CPUs that Linux supports. A damaged number is mapped to one of them."""
MAX_NUMBERED = 64
"""Devices of which sequence numbers are tracked: the first ones found."""
UNFOLLOWED = MAX_NUMBERED * MAX_CPUS
"""Index of the sequence numbers of all other devices, which have no meaning."""
NO_DEVICE = -1
"""A row of ``Found.numbered`` without a device."""
MAX_PAIRS = 256


class Found(NamedTuple):
    """Counts to which the loop adds.

    Attributes:
        skipped: int64 (reasons,), by ``REASONS``.
        actions: int64 (N_ACTIONS,), records by action.
        numbered: int64 (MAX_NUMBERED,), the device of each row below, or NO_DEVICE.
        first_sequence, last_sequence: int64 (UNFOLLOWED + MAX_CPUS,), of each device on each CPU, as numbered by
            the kernel; 0 if none. Notes are excluded: the kernel does not number them.
        n_cpus: int64 (1,): one more than the highest CPU with a sequence number.
        pairs: int64 (MAX_PAIRS, 2), source and target devices of remaps.
        numbers: int64 (2,): pairs found, events lost.
    """

    skipped: NDArray[np.int64]
    actions: NDArray[np.int64]
    numbered: NDArray[np.int64]
    first_sequence: NDArray[np.int64]
    last_sequence: NDArray[np.int64]
    n_cpus: NDArray[np.int64]
    pairs: NDArray[np.int64]
    numbers: NDArray[np.int64]


N_PAIRS, N_LOST = range(2)


def nothing_found() -> Found:
    """Return the counts before the first record."""
    # Pages that are never written take no memory.
    return Found(
        skipped=np.zeros(len(REASONS), np.int64),
        actions=np.zeros(N_ACTIONS, np.int64),
        numbered=np.full(MAX_NUMBERED, NO_DEVICE, np.int64),
        first_sequence=np.zeros(UNFOLLOWED + MAX_CPUS, np.int64),
        last_sequence=np.zeros(UNFOLLOWED + MAX_CPUS, np.int64),
        n_cpus=np.zeros(1, np.int64),
        pairs=np.zeros((MAX_PAIRS, 2), np.int64),
        numbers=np.zeros(2, np.int64),
    )


def numbers_by_device(found: Found) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield each device with its first and last sequence numbers on each CPU, views of int64 (n_cpus,)."""
    n = int(found.n_cpus[0])
    for row, device in enumerate(found.numbered.tolist()):
        if device == NO_DEVICE:
            return
        begin = row * MAX_CPUS
        yield device, found.first_sequence[begin : begin + n], found.last_sequence[begin : begin + n]


@compiled_in_place
def row_of(device: int, numbered: NDArray[np.int64]) -> int:
    """Return the row of a device, which may be a new one; one past the last row if none is free."""
    for row in range(len(numbered)):
        if numbered[row] == NO_DEVICE:
            numbered[row] = device
        if numbered[row] == device:
            return row
    return len(numbered)


@compiled_in_place
def note_remap(block: NDArray[np.uint8], payload: int, target: int, found: Found) -> None:
    """Record which device passed an access on to which other device."""
    # always big-endian: struct blk_io_trace_remap holds __be32
    origin = word(block, payload, True)
    pairs, n = found.pairs, found.numbers[N_PAIRS]
    for i in range(n):
        if pairs[i, 0] == origin and pairs[i, 1] == target:
            return
    if n < MAX_PAIRS:
        pairs[n, 0], pairs[n, 1] = origin, target
        found.numbers[N_PAIRS] = n + 1


@compiled_in_place
def note_skipped(category: int, length: int, skipped: NDArray[np.int64]) -> None:
    """Count why a record of the counted action is not an access."""
    if category & _PASSTHROUGH_BIT:
        skipped[PASSTHROUGH] += 1
    elif category & _DISCARD_BIT:
        skipped[DISCARD] += 1
    elif category >> _WRITE_ZEROES_BIT & 1:
        skipped[WRITE_ZEROES] += 1
    elif category & NO_DATA:
        for bit in range(_FIRST_ZONE_BIT, _LAST_ZONE_BIT + 1):
            skipped[ZONE_RESET + bit - _FIRST_ZONE_BIT] += category >> bit & 1
    elif length == 0:
        skipped[FLUSH if category & _FLUSH_BIT else ZERO_LENGTH] += 1
    else:
        skipped[NO_SECTOR] += 1


SHORT, BROKEN, NEW_DISK, FULL, NO_FREE_ROW = range(5)
"""Why the loop stopped, in this order: the bytes of a file end, with a record or within one; something in a
file is not a record; an access is on a disk without a number; the table is half full, or must be created
because the first completion of the trace is next; no row is free."""

OVER = np.iinfo(np.int64).max
"""Time of the next record of a file that has ended."""

_CATEGORY_SHIFT = 16
_WRITE, _FLUSH, _SYNC, _NOTIFY, _FUA = 1 << 1, 1 << 2, 1 << 3, 1 << 10, 1 << 15
_CGROUP_TAG = 1 << 8
_REQUEUE, _ISSUE, _COMPLETE, _REMAP = 6, 7, 8, 15


class Layout(NamedTuple):
    """Offsets of the fields of a record, in bytes from its beginning (``blktrace_reader``).

    ``big_endian`` is None for little-endian records: see ``text_bytes``.
    """

    big_endian: bool | None
    magic: int
    nbytes: int
    action: int
    action_nbytes: int
    device: int
    cpu: int
    pdu_len: int


class Files(NamedTuple):
    """The unread bytes of the files that one recorder wrote.

    Attributes:
        block: bytes of all files.
        at, end: int64 (files,), where the bytes of each file begin and end in the block.
        latest_ns: int64 (files,), latest time of the records read. Files are merged by it: the records of a file
            keep their order where its clock steps back.
        is_over: bool (files,), the file has ended.
    """

    block: NDArray[np.uint8]
    at: NDArray[np.int64]
    end: NDArray[np.int64]
    latest_ns: NDArray[np.int64]
    is_over: NDArray[np.bool_]


@inlined
def _time_of(block: NDArray[np.uint8], at: int, big_endian: bool | None) -> int:
    when = long(block, at + 8, big_endian)
    return TIME_NS_MAX if when < 0 or when > TIME_NS_MAX else when


@compiled_in_place
def _earliest(files: Files, layout: Layout) -> tuple[int, int]:
    """Return the file with the earliest next record, and until when it remains the earliest.

    Of equal times the first file counts. If the next record of a file is missing, returns NONE and that file.
    """
    first, first_ns, until_ns = 0, OVER, OVER
    for i in range(len(files.at)):
        if files.is_over[i]:
            continue
        if files.at[i] + layout.nbytes > files.end[i]:
            return NONE, i
        next_ns = max(files.latest_ns[i], _time_of(files.block, files.at[i], layout.big_endian))
        if next_ns < first_ns:
            # Of two records at one time the first file's comes first, so this one must stay ahead of it.
            first, first_ns, until_ns = i, next_ns, first_ns - 1 if first_ns < OVER else OVER
        elif next_ns < until_ns:
            until_ns = next_ns
    return first, until_ns


@compiled_in_place
def _number_of(device: int, devices: NDArray[np.int64]) -> int:
    for number in range(len(devices)):
        if devices[number] == device:
            return number
    return NONE


@compiled_in_place
def _take_back(
    block: NDArray[np.uint8], at: int, layout: Layout, devices: NDArray[np.int64], numbers: NDArray[np.int64],
    rows: Rows, table: Table,
) -> None:  # fmt: skip
    """Handle a requeue record: its access went back into the queue."""
    action = at + layout.action
    is_long = layout.action_nbytes == 8
    category = (
        long(block, action, layout.big_endian) if is_long else word(block, action, layout.big_endian)
    ) >> _CATEGORY_SHIFT
    lbn, length = long(block, at + 16, layout.big_endian), word(block, at + 24, layout.big_endian)
    disk = _number_of(word(block, at + layout.device, layout.big_endian), devices)
    if disk != NONE and length and 0 <= lbn < LBN_MAX and not category & NO_DATA:
        take_back(lbn, end_of(lbn, length), disk, numbers, rows, table)


@compiled_in_place
def follow_records(
    files: Files,
    layout: Layout,
    counted_action: int,
    devices: NDArray[np.int64],
    found: Found,
    numbers: NDArray[np.int64],
    rows: Rows,
    table: Table,
    ended_on: NDArray[np.int64],
    with_flushes: bool,
) -> tuple[int, int]:
    """Read records until those of one file end.

    Args:
        files: read on from their current positions.
        layout: of their records.
        counted_action: the action that counts as an access.
        devices: int64 (disks,), the devices that have a number.
        found: counts are added.
        numbers, rows, table, ended_on: as in ``completion_loop.follow_events``; ops have the flags of an access
            above their ``OP_BITS``.
        with_flushes: flushes without data are rows, too.

    Returns:
        why it stopped, and the file concerned.
    """
    block, big, size = files.block, layout.big_endian, layout.nbytes
    magic, action_at, action_is_long = layout.magic, layout.action, layout.action_nbytes == 8
    device_at, cpu_at, pdu_len_at = layout.device, layout.cpu, layout.pdu_len
    actions, skipped = found.actions, found.skipped
    first_sequence, last_sequence = found.first_sequence, found.last_sequence
    time_of, op_of, lbn_of, nbytes_of = rows.time_ns, rows.op, rows.lbn, rows.nbytes
    disk_of, latency_of, ended_of, before_of = rows.disk, rows.latency_ns, rows.ended, rows.before
    keys, waiting = table
    n_places, n_rows = len(waiting), len(time_of)
    n, n_keys = numbers[N_ROWS], numbers[N_KEYS]
    seen = numbers[SEEN_AT] != NONE
    inspected = 1 << _REMAP | (1 << _REQUEUE if counted_action == _ISSUE else 0)
    n_lost = 0
    device = disk = NONE
    first_number = 0
    file, why = 0, SHORT
    while why == SHORT:
        file, until_ns = _earliest(files, layout)
        if file == NONE:
            file = until_ns
            break
        at, end, latest = files.at[file], files.end[file], files.latest_ns[file]
        is_next, requeued = True, NONE
        while at + size <= end and is_next and 2 * n_keys <= n_places:
            if word(block, at, big) != magic:
                why = BROKEN
                break
            when = _time_of(block, at, big)
            is_next = max(latest, when) <= until_ns
            pdu_nbytes = half(block, at + pdu_len_at, big)
            if not is_next or at + size + pdu_nbytes > end:
                break
            action = long(block, at + action_at, big) if action_is_long else word(block, at + action_at, big)
            category, what = action >> _CATEGORY_SHIFT, action & 0xFFFF & ~_CGROUP_TAG
            if category & _NOTIFY:
                latest = max(latest, when)
                at += size + pdu_nbytes
                continue
            is_completion = what == _COMPLETE
            if word(block, at + device_at, big) != device:
                device = word(block, at + device_at, big)
                disk, first_number = _number_of(device, devices), row_of(device, found.numbered) * MAX_CPUS
            if what == counted_action or is_completion:
                lbn, length = long(block, at + 16, big), word(block, at + 24, big)
                if category & NO_DATA or length == 0 or lbn < 0 or lbn >= LBN_MAX:
                    if with_flushes and length == 0 and category & (NO_DATA | _FLUSH) == _FLUSH:
                        last = FLUSH_LBN + ((category & _WRITE) >> 1)
                        if what == counted_action:
                            if disk == NONE:
                                why = NEW_DISK
                                break
                            if n == n_rows:
                                why = NO_FREE_ROW
                                break
                            row = np.uintp(n)
                            time_of[row], lbn_of[row], nbytes_of[row], disk_of[row] = when, last, 0, disk
                            op_of[row], ended_of[row] = 0, 0
                            # A completion is searched only after the first one of an access.
                            latency_of[row] = PENDING if seen else UNKNOWN_LATENCY
                            if seen:
                                place = place_of(last, disk, keys, waiting, disk_of)
                                n_keys += enter(n, place, last, disk, keys, waiting, before_of)
                            n += 1
                        elif seen and disk != NONE:
                            place = place_of(last, disk, keys, waiting, disk_of)
                            held = latest_at(place, n, waiting)
                            if held != NONE:
                                complete_flush(held, when, time_of, latency_of)
                                n_keys -= leave(place, keys, waiting, before_of, latency_of)
                    if what == counted_action:
                        note_skipped(category, length, skipped)
                else:
                    if is_completion and not seen and counted_action != _COMPLETE:
                        numbers[SEEN_AT] = numbers[N_RELEASED] + n
                        why = FULL
                        break
                    if disk == NONE:
                        if what == counted_action:
                            why = NEW_DISK
                            break
                    elif n == n_rows:
                        why = NO_FREE_ROW
                        break
                    else:
                        last = end_of(lbn, length)
                        place = place_of(last, disk, keys, waiting, disk_of) if seen else 0
                        if what == counted_action:
                            row = np.uintp(n)
                            time_of[row], lbn_of[row], nbytes_of[row], disk_of[row] = when, lbn, length, disk
                            op_of[row] = (
                                (category & _WRITE) >> 1
                                | (category & _SYNC) >> 2
                                | (category & _FUA) >> 13
                                | (category & _FLUSH) << 1
                            )
                            latency_of[row], ended_of[row] = PENDING, ended_on[np.uintp(disk)]
                            if seen:
                                n_keys += enter(n, place, last, disk, keys, waiting, before_of)
                            n += 1
                        else:
                            held = latest_at(place, n, waiting)
                            if held != NONE:
                                complete(held, when, n, time_of, disk_of, latency_of, ended_of, ended_on)
                                n_keys -= leave(place, keys, waiting, before_of, latency_of)
                                last = lbn_of[np.uintp(held)]
                            if lbn < last:
                                numbers[N_ROWS], numbers[N_KEYS] = n, n_keys
                                complete_within(lbn, last, disk, when, numbers, rows, table, ended_on)
                                n_keys = numbers[N_KEYS]
            if what < N_ACTIONS:
                actions[np.uintp(what)] += 1
                if inspected >> what & 1:
                    if what == _REQUEUE:
                        requeued = at
                    else:
                        tag_nbytes = 8 if action & _CGROUP_TAG else 0
                        if pdu_nbytes >= tag_nbytes + 8:
                            note_remap(block, at + size + tag_nbytes, word(block, at + device_at, big), found)
            sequence = word(block, at + 4, big)
            if sequence:
                cpu = np.uintp(word(block, at + cpu_at, big) % MAX_CPUS)
                number = np.uintp(first_number) + cpu
                before = last_sequence[number]
                # A step back means another recording or another numbering, not a loss.
                if before == 0:
                    first_sequence[number] = sequence
                    found.n_cpus[0] = max(found.n_cpus[0], np.int64(cpu) + 1)
                elif sequence > before + 1 and first_number < UNFOLLOWED:
                    n_lost += sequence - before - 1
                last_sequence[number] = sequence
            latest = max(latest, when)
            at += size + pdu_nbytes
            if requeued != NONE:
                break
        files.at[file], files.latest_ns[file] = at, latest
        if requeued != NONE:  # outside of the inner loop, which it would slow down
            numbers[N_ROWS], numbers[N_KEYS] = n, n_keys
            _take_back(block, requeued, layout, devices, numbers, rows, table)
            n_keys = numbers[N_KEYS]
        elif is_next:
            break
    if 2 * n_keys > n_places:
        why = FULL
    if why == SHORT and files.at[file] + 4 <= files.end[file] and word(block, files.at[file], big) != magic:
        why = BROKEN
    numbers[N_ROWS], numbers[N_KEYS] = n, n_keys
    found.numbers[N_LOST] += n_lost
    return why, file
