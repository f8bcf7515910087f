"""rbd-replay's binary traces, created by rbd-replay-prep (Ceph, src/rbd_replay/ActionTypes.{h,cc}).

Version 1 begins with ``rbd-replay-trace``. Every action is {u8 version, u8 compatible, u32 bytes, u8 type, body},
all little-endian. Version 0 has no banner and no lengths, is big-endian, and has two more counts in every action.

There are no times: an action waits some ns after others. The times here are those of a replay in which requests
take no time.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from cephfit.core.errors import InputError
from cephfit.core.units import LBN_NBYTES
from cephfit.traces.columns import OP_READ, OP_WRITE, AccessBatch
from cephfit.traces.readers.reader import Rows, StreamReader, batches_of
from cephfit.traces.stream import TraceStream

BANNER = b"rbd-replay-trace"
_OPS = {2: OP_READ, 3: OP_WRITE, 4: OP_READ, 5: OP_WRITE}
_DISCARDS = frozenset({10, 11})
_OPENS = frozenset({6, 8})
_CLOSES = frozenset({7, 9})
_THREADS = frozenset({0, 1})
_TYPES = frozenset(range(12))

_BLOCK_NBYTES = 1 << 20
_ACTION_NBYTES_MAX = 1 << 24
"""An action has about a hundred bytes, and 12 more for each action that it waits for."""
_REMEMBERED = 1 << 20
_STRETCH = 1 << 16


@dataclass(frozen=True, slots=True)
class Action:
    """An action. ``image``, ``offset`` and ``length`` are set if its type has them; ``name`` is what it opens."""

    kind: int
    number: int
    thread: int
    waits: tuple[tuple[int, int], ...]
    image: int = 0
    offset: int = 0
    length: int = 0
    name: str = ""


class _ShortError(Exception):
    """The bytes end within an action."""


class RbdReplayReader(StreamReader):
    """Reads rbd-replay's traces. Every image is a disk."""

    name = "rbd-replay"
    title = "rbd-replay's binary trace (rbd-replay-prep), versions 0 and 1"
    names_disks = True
    note = "times are those of a replay in which requests take no time: the trace records only dependencies"
    lacks = (
        "time: none is recorded; rates and inter-arrival are upper bounds of speed",
        "latency and outstanding",
    )

    def sniff(self, head: bytes) -> bool:
        return head.startswith(BANNER) or _is_version_0(head)

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return batches_of(_stretches(stream), in_order=False)


def _is_version_0(head: bytes) -> bool:
    """Return whether the file begins with the start of a thread and three valid actions, or fewer up to its
    end."""
    if head[:1] != b"\0" or len(head) < 2 * 25:
        return False
    place, numbers = 0, set[int]()
    try:
        for n in range(3):
            action, place = action_of(head, place, version=0)
            if (n == 0 and action.kind != 0) or len(action.waits) > 64 or action.number >= 1 << 24:
                return False
            numbers.add(action.number)
    except (_ShortError, ValueError):
        return False
    return len(numbers) == 3  # zeros alone would be repeated starts of one thread


def _stretches(stream: TraceStream) -> Iterator[Rows]:
    version = 1 if stream.head().startswith(BANNER) else 0
    if version:
        stream.read(len(BANNER))
    rows, schedule, images = Rows(), _Schedule(), dict[int, str]()
    begin, buffer, place, n = stream.offset, b"", 0, 0
    while True:
        try:
            if place == len(buffer):
                raise _ShortError
            action, after = action_of(buffer, place, version=version)
            _take(rows, schedule, images, action)
        except ValueError as error:
            raise InputError(
                f"this is not an rbd-replay action: {error}",
                where=f"{stream.name}, byte {begin + place}",
                remedy="the file is damaged, has another byte order, or other data follows the trace",
            ) from None
        except _ShortError:
            fresh = stream.read(_BLOCK_NBYTES)
            if not fresh:
                break
            begin, buffer, place = begin + place, buffer[place:] + fresh, 0
            continue
        place = after
        n += 1
        if n % _STRETCH == 0:
            yield rows.take()
    yield rows.take()
    if place < len(buffer):
        raise InputError(
            "the trace is cut off within its last action",
            where=f"{stream.name}, byte {begin + place}",
            remedy="copy the file again",
        )


def _take(rows: Rows, schedule: "_Schedule", images: dict[int, str], action: Action) -> None:
    time_ns = schedule.time_ns(action)
    if action.kind in _OPENS:
        if len(images) < _STRETCH:
            images[action.image] = action.name
    elif action.kind in _DISCARDS:
        rows.skip("discard")
    elif action.kind in _OPS:
        if action.length == 0:
            rows.skip("zero length")
            return
        disk = images.get(action.image) or f"image {action.image}"
        rows.add(time_ns, _OPS[action.kind], action.offset // LBN_NBYTES, action.length, disk)


class _Schedule:
    """Computes when each action begins: after the previous one in its thread, and after all that it waits for."""

    def __init__(self) -> None:
        self._of_action: dict[int, int] = {}
        self._of_thread: dict[int, int] = {}

    def time_ns(self, action: Action) -> int:
        time_ns = self._of_thread.get(action.thread, 0)
        for number, delay_ns in action.waits:
            # an odd number is the completion of the action before it
            time_ns = max(time_ns, self._of_action.get(number & ~1, 0) + delay_ns)
        if time_ns >= 1 << 62:
            raise ValueError("its time is more than a century after the first")
        if len(self._of_action) >= _REMEMBERED:
            for old in list(self._of_action)[: _REMEMBERED // 2]:
                del self._of_action[old]
        if len(self._of_thread) >= _REMEMBERED:
            self._of_thread.clear()
        self._of_action[action.number & ~1] = self._of_thread[action.thread] = time_ns
        return time_ns


def action_of(buffer: bytes, place: int, *, version: int) -> tuple[Action, int]:
    """Return the action at a position, and where the next one begins.

    Raises:
        _ShortError: the buffer ends within the action.
        ValueError: there is no action.
    """
    if version == 0:
        return _body(buffer, place, ">", len(buffer), version)
    if place + 6 > len(buffer):
        raise _ShortError
    _, compatible, nbytes = struct.unpack_from("<BBI", buffer, place)
    if compatible > 1:
        raise ValueError(f"reading it needs version {compatible}")
    if not 17 <= nbytes <= _ACTION_NBYTES_MAX:
        raise ValueError(f"{nbytes} bytes are impossible")
    end = place + 6 + nbytes
    if end > len(buffer):
        raise _ShortError
    try:
        action, _ = _body(buffer, place + 6, "<", end, version)
    except _ShortError:
        raise ValueError(f"its {nbytes} bytes are too few") from None
    return action, end


def _body(buffer: bytes, place: int, order: str, end: int, version: int) -> tuple[Action, int]:
    def take(layout: str) -> tuple[int, ...]:
        nonlocal place
        nbytes = struct.calcsize(order + layout)
        if place + nbytes > end:
            raise _ShortError
        values = struct.unpack_from(order + layout, buffer, place)
        place += nbytes
        return values

    def text() -> str:
        nonlocal place
        (nbytes,) = take("I")
        if nbytes > 1 << 16:
            raise ValueError("a name of more than 64 KiB")
        if place + nbytes > end:
            raise _ShortError
        place += nbytes
        return buffer[place - nbytes : place].decode("utf-8", "replace")

    (kind,) = take("B")
    if kind not in _TYPES:
        if version:  # rbd-replay also skips unknown actions
            return Action(kind, 0, 0, ()), end
        raise ValueError(f"type {kind} is unknown")
    number, thread = take("IQ")
    if version == 0:
        take("II")
    (n_waits,) = take("I")
    if n_waits > _ACTION_NBYTES_MAX // 12:
        raise ValueError(f"it waits for {n_waits} others")
    if place + 12 * n_waits > end:
        raise _ShortError
    waits = tuple(struct.iter_unpack(order + "IQ", buffer[place : place + 12 * n_waits]))
    place += 12 * n_waits
    if kind in _THREADS:
        return Action(kind, number, thread, waits), place
    (image,) = take("Q")
    if kind in _CLOSES:
        return Action(kind, number, thread, waits, image), place
    if kind in _OPENS:
        name, snapshot = text(), text()
        take("B")
        return Action(kind, number, thread, waits, image, name=f"{name}@{snapshot}" if snapshot else name), place
    offset, length = take("QQ")
    return Action(kind, number, thread, waits, image, offset, length), place
