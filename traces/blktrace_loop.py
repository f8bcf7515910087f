"""The loop over blktrace's records: finds each one, and keeps what counts."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled
from cephfit.traces.unaligned import half, long, word

WHOLE, BROKEN = range(2)
"""How a block ended: with a whole record or within one, or with something that is no record."""

PASSTHROUGH, DISCARD, FLUSH, ZERO_LENGTH, NO_SECTOR = range(5)
REASONS = ("passthrough", "discard", "flush", "zero length", "no valid sector")
"""Why a record of the wanted action is no access."""

N_ACTIONS = 32
MAX_CPUS = 1 << 16
MAX_PAIRS = 256
SECTORS_MAX = 1 << 54
"""No disk has more 512-byte sectors than fit into 63 bits of bytes; the kernel writes -1 for "no sector"."""

TIME_MAX = 1 << 62

_CATEGORY_SHIFT = 16
_WRITE, _FLUSH, _PASSTHROUGH, _NOTIFY, _DISCARD = 1 << 1, 1 << 2, 1 << 9, 1 << 10, 1 << 13
_CGROUP_TAG = 1 << 8
_COMPLETE, _REMAP = 8, 15


class Layout(NamedTuple):
    """Where the fields of a record are, in bytes from its beginning (``blktrace_record``)."""

    big_endian: bool
    magic: int
    nbytes: int
    action: int
    action_nbytes: int
    device: int
    cpu: int
    pdu_len: int


class Columns(NamedTuple):
    """The records that count, in order: room for as many as a block can hold. ``key_ns`` is the running maximum of
    the time: the order in which files are merged."""

    is_completion: NDArray[np.bool_]
    time_ns: NDArray[np.int64]
    key_ns: NDArray[np.int64]
    op: NDArray[np.uint8]
    lbn: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    device: NDArray[np.int64]


class Found(NamedTuple):
    """What else is counted, added to.

    Attributes:
        skipped: int64 (5,), by ``REASONS``.
        actions: int64 (N_ACTIONS,), records by action.
        last_sequence: int64 (MAX_CPUS,), of each CPU; 0 where it had none.
        pairs: int64 (MAX_PAIRS, 2), devices that remaps came from and went to.
        numbers: int64 (4,): pairs found, events lost, latest time, records without a sequence number.
    """

    skipped: NDArray[np.int64]
    actions: NDArray[np.int64]
    last_sequence: NDArray[np.int64]
    pairs: NDArray[np.int64]
    numbers: NDArray[np.int64]


N_PAIRS, N_LOST, LATEST_NS, N_UNNUMBERED = range(4)


@compiled
def scan(
    block: NDArray[np.uint8], layout: Layout, wanted: int, columns: Columns, found: Found
) -> tuple[int, int, int, int]:
    """Read the records of a block, which begins with one.

    Args:
        block: shape (n,).
        layout: of its records.
        wanted: the action that counts as an access.
        columns: written from row 0 on.
        found: added to.

    Returns:
        rows written, the first byte after the last whole record, WHOLE or BROKEN, and records read.
    """
    big, size, n_bytes = layout.big_endian, layout.nbytes, len(block)
    is_completion, time_ns, key_ns, op = columns.is_completion, columns.time_ns, columns.key_ns, columns.op
    lbns, lengths, devices = columns.lbn, columns.nbytes, columns.device
    skipped, actions, last_sequence, pairs = found.skipped, found.actions, found.last_sequence, found.pairs
    n_pairs, n_lost, latest, n_unnumbered = found.numbers
    magic, action_at, action_nbytes = layout.magic, layout.action, layout.action_nbytes
    device_at, cpu_at, pdu_len_at = layout.device, layout.cpu, layout.pdu_len
    at = n = n_records = 0
    state = WHOLE
    while at + 4 <= n_bytes:
        if word(block, at, big) != magic:
            state = BROKEN
            break
        if at + size > n_bytes:
            break
        pdu_nbytes = half(block, at + pdu_len_at, big)
        if at + size + pdu_nbytes > n_bytes:
            break
        n_records += 1
        action = word(block, at + action_at, big)
        if action_nbytes == 8:
            action = long(block, at + action_at, big)
        category = action >> _CATEGORY_SHIFT
        what = action & 0xFFFF & ~_CGROUP_TAG
        when = long(block, at + 8, big)
        when = TIME_MAX if when < 0 or when > TIME_MAX else when
        latest = max(latest, when)
        sequence = word(block, at + 4, big)
        if sequence:
            cpu = np.uintp(word(block, at + cpu_at, big) % MAX_CPUS)
            before = last_sequence[cpu]
            # A step back is another recording or a numbering of its own, not a loss.
            if before and sequence > before + 1:
                n_lost += sequence - before - 1
            last_sequence[cpu] = sequence
        else:
            n_unnumbered += 1
        if not category & _NOTIFY:
            if what < N_ACTIONS:
                actions[np.uintp(what)] += 1
            # Which action comes next cannot be foreseen by the processor, so every record is written to the next
            # row, and the row is kept or not without a branch.
            sector, length = long(block, at + 16, big), word(block, at + 24, big)
            row = np.uintp(n)
            is_completion[row] = what == _COMPLETE
            time_ns[row], key_ns[row] = when, latest
            op[row] = (category & _WRITE) >> 1
            lbns[row], lengths[row] = sector, length
            devices[row] = word(block, at + device_at, big)
            is_wanted = what == wanted
            if category & (_PASSTHROUGH | _DISCARD) or length == 0 or sector < 0 or sector >= SECTORS_MAX:
                if is_wanted:
                    if category & _PASSTHROUGH:
                        skipped[PASSTHROUGH] += 1
                    elif category & _DISCARD:
                        skipped[DISCARD] += 1
                    elif length == 0:
                        skipped[FLUSH if category & _FLUSH else ZERO_LENGTH] += 1
                    else:
                        skipped[NO_SECTOR] += 1
            else:
                n += is_wanted | (what == _COMPLETE)
            if what == _REMAP:
                tag_nbytes = 8 if action & _CGROUP_TAG else 0
                if pdu_nbytes >= tag_nbytes + 8:
                    # always big-endian: struct blk_io_trace_remap holds __be32
                    origin = word(block, at + size + tag_nbytes, True)
                    target = word(block, at + device_at, big)
                    i = 0
                    while i < n_pairs and (pairs[i, 0] != origin or pairs[i, 1] != target):
                        i += 1
                    if i == n_pairs and n_pairs < MAX_PAIRS:
                        pairs[i, 0], pairs[i, 1] = origin, target
                        n_pairs += 1
        at += size + pdu_nbytes
    found.numbers[N_PAIRS], found.numbers[N_LOST] = n_pairs, n_lost
    found.numbers[LATEST_NS], found.numbers[N_UNNUMBERED] = latest, n_unnumbered
    return n, at, state, n_records
