"""Wherever a blktrace recording is cut, the joined parts give the same as the whole."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import trace_maker as made
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_maker import Event, mixed_workload, packed

from cephfit.core.errors import InputError
from cephfit.traces import profile_files
from cephfit.traces.description.recording import Counting, PartialProfile
from cephfit.traces.matching.completion_loop import MAX_HELD
from cephfit.traces.readers.blktrace import blktrace_joining, blktrace_parts, blktrace_reader
from cephfit.traces.readers.blktrace.blktrace_joining import joined_parts
from cephfit.traces.readers.blktrace.blktrace_loop import OVER
from cephfit.traces.readers.blktrace.blktrace_parts import Part, follow_alone, parts_of
from cephfit.traces.readers.blktrace.blktrace_reader import BlktraceReader, layout_of
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.stream import TraceStream

SDB = made.SDA + (1 << 20)
SELDOM = 9
"""A CPU without a record at the beginning of most parts."""


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    """Blocks and parts of some hundred bytes, without a fallback to reading the rest as a whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blktrace_reader, "MAX_PAYLOAD", 200)
        patch.setattr(blktrace_parts, "FIRST_BLOCKS", (1000, 1000, 1000))
        patch.setattr(blktrace_joining, "MAX_UNJOINED", 1 << 30)
        patch.setattr(blktrace_parts, "NBYTES_OF_FILE", 1)
        yield


def whole(files: list[Path], action: Action) -> PartialProfile:
    counting, streams = Counting(None), [TraceStream(file) for file in files]
    for batch in BlktraceReader(action).read_together(streams):
        counting.add(batch)
    for stream in streams:
        stream.close()
    return counting.partial()


def in_parts(files: list[Path], action: Action, part_nbytes: int, block_nbytes: int) -> tuple[PartialProfile, int]:
    """Return the result of the parts, and their number."""
    streams, counted_action = [TraceStream(file) for file in files], BlktraceReader(action).counted_action
    layout = layout_of(streams)
    for stream in streams:
        stream.close()
    assert layout is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blktrace_parts, "PART_NBYTES", part_nbytes)
        patch.setattr(blktrace_reader, "BLOCK_NBYTES", block_nbytes)
        parts = list(parts_of(files, layout, counted_action))
        return joined_parts(iter(parts), layout, counted_action, 2, lambda _: None), len(parts)


def counts(partial: PartialProfile) -> tuple[object, ...]:
    """Return all counts."""
    disks = {name: tally.joint.tolist() for name, tally in partial.disks.items()}
    return list(disks), disks, partial.skipped, partial.events, partial.stacked, partial.lost


JOINING = ["one", "one", "one", "merged", "split", "dm", "other", "stray"]
"""Kinds of events that leave no access waiting forever where queued accesses count."""
ALL = [*JOINING, "again", "lost"]


def recording(n: int, rng: np.random.Generator, kinds: list[str], lbn_max: int) -> list[Event]:
    """Return requests that are merged, split, requeued and lost, overlap, and pass from dm to a disk.

    Messages, discards and other records are between them; all on one to three CPUs.
    """
    events: list[Event] = []
    clock = 1000
    n_cpus = int(rng.integers(1, 4))
    for _ in range(n):
        clock += int(rng.integers(0, 3000))
        cpu = int(rng.integers(0, n_cpus)) if rng.random() < 0.97 else SELDOM
        sector, count = 8 * int(rng.integers(0, lbn_max)), int(rng.integers(1, 4))
        category = int(rng.choice([made.READ, made.WRITE]))
        device = int(rng.choice([made.SDA, made.SDA, SDB]))
        way = {"category": category, "cpu": cpu, "device": device}
        took = int(rng.choice([100, 3000, 9000]))
        kind = rng.choice(kinds)
        end = clock + took
        span = {"sector": sector, "nbytes": 4096}
        if kind == "merged":
            for i in rng.permutation(count).tolist():
                clock += int(rng.integers(0, 40))
                events.append(Event(clock, sector + 8 * i, 4096, made.Q, **way))
            events.append(Event(clock, sector, 4096 * count, made.D, **way))
            events.append(Event(clock + took, sector, 4096 * count, made.C, **way))
        elif kind == "split":
            events.append(Event(clock, sector, 4096 * count, made.Q, **way))
            for i in range(count):
                events.append(Event(clock + 5, sector + 8 * i, 4096, made.D, **way))
                events.append(Event(end + 7 * i, sector + 8 * i, 4096, made.C, **way))
        elif kind == "again":
            events += [
                Event(clock + 9 * i, what=what, **span, **way)
                for i, what in enumerate((made.Q, made.D, 6, made.D))
            ]
            events.append(Event(end + 50, what=made.C, **span, **way))
        elif kind == "lost":
            events.append(Event(clock, what=int(rng.choice([made.Q, made.D])), **span, **way))
        elif kind == "stray":
            events.append(Event(clock, sector, 4096 * count, made.C, **way))
        elif kind == "dm":
            upper = way | {"device": made.DM0}
            remap = Event(clock + 2, what=made.A, **span, **way, payload=made.remap(made.DM0, sector))
            events += [
                Event(clock, what=made.Q, **span, **upper),
                remap,
                Event(clock + 2, what=made.Q, **span, **way),
            ]
            events += [Event(clock + 3, what=made.D, **span, **way), Event(end, what=made.C, **span, **way)]
            events.append(Event(end + 1, what=made.C, **span, **upper))
        elif kind == "other":
            payload = bytes(rng.integers(0, 256, int(rng.integers(0, 90)), np.uint8))
            events.append(Event(clock, 0, 0, 2, made.NOTIFY, cpu=cpu, payload=payload))
            events.append(Event(clock, what=made.Q, **span, **(way | {"category": made.WRITE | made.DISCARD})))
        else:
            events += [Event(clock, what=made.Q, **span, **way), Event(clock + 4, what=made.D, **span, **way)]
            events.append(Event(end, what=made.C, **span, **way))
    return sorted(events, key=lambda e: e.time)


def message(number: int = 0, *, cpu: int = 0) -> bytes:
    """Return a record that is not an access; it fills the blocks at the ends of which parts may join."""
    return Event(0, what=made.P, category=made.QUEUE, nbytes=0, cpu=cpu).packed(number)


def numbered(events: list[Event], rng: np.random.Generator, lost: float) -> list[bytes]:
    """Return records with the sequence numbers of their devices and CPUs.

    Some numbers are omitted, and some records have none. Those of notes are arbitrary.
    """
    numbers: Counter[tuple[int, int]] = Counter()
    records = []
    for event in events:
        of = event.device, event.cpu
        if event.category & made.NOTIFY:
            records.append(event.packed(int(rng.integers(0, 1 << 32))))
            continue
        numbers[of] += 1 + int(rng.random() < lost) * int(rng.integers(1, 9))
        records.append(event.packed(numbers[of] if rng.random() > lost / 2 else 0))
    return records


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    n=st.integers(20, 400),
    part_nbytes=st.integers(3000, 20_000),
    block_nbytes=st.sampled_from([1000, 4096]),
    lost=st.sampled_from([0.0, 0.05]),
    kinds=st.sampled_from([JOINING, JOINING, ALL]),
    lbn_max=st.sampled_from([12, 40, 100_000]),
    action=st.sampled_from(Action),
    n_files=st.integers(1, 3),
    steps_back=st.booleans(),
)
def test_any_cut_gives_the_identical_profile(
    seed: int,
    n: int,
    part_nbytes: int,
    block_nbytes: int,
    lost: float,
    kinds: list[str],
    lbn_max: int,
    action: Action,
    n_files: int,
    steps_back: bool,
) -> None:
    """Files contain records of other CPUs, and the clock sometimes steps back."""
    rng = np.random.default_rng(seed)
    events = recording(n, rng, kinds, lbn_max)
    if steps_back:
        for event in events[:: int(rng.integers(5, 40))]:
            event.time = max(event.time - int(rng.integers(0, 20_000)), 0)
    records = numbered(events, rng, lost)
    file_of = rng.integers(0, n_files, len(records))
    with TemporaryDirectory() as folder:
        files = [Path(folder) / f"sda.blktrace.{2 * i}" for i in range(n_files)]
        for i, file in enumerate(files):
            file.write_bytes(b"".join(r for r, f in zip(records, file_of, strict=True) if f == i))
        if n_files == 3:
            files.append(Path(folder) / "sda.blktrace.7")
            files[-1].touch()
        found, _ = in_parts(files, action, part_nbytes, block_nbytes)
        assert counts(found) == counts(whole(files, action))


@pytest.fixture
def joined_after(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After how many first blocks each part joined; no entry for a part that was followed again to its end."""
    joined: list[int] = []
    join = blktrace_joining.PartJoiner._join
    monkeypatch.setattr(
        blktrace_joining.PartJoiner, "_join", lambda self, f, n: (joined.append(n), join(self, f, n))[1]
    )
    return joined


@pytest.mark.parametrize("n_files", [1, 2])
def test_most_parts_join_after_their_first_block(
    n_files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined_after: list[int]
) -> None:
    """Otherwise the tests above would only show that one thread can follow everything."""
    events = mixed_workload(2000)
    files = [tmp_path / f"sda.blktrace.{i}" for i in range(n_files)]
    for i, file in enumerate(files):
        file.write_bytes(packed([e for e in events if e.cpu == i or n_files == 1]))
    monkeypatch.setattr(blktrace_parts, "FIRST_BLOCKS", (3000, 3000))
    found, n_parts = in_parts(files, Action.QUEUE, 20_000, 4096)
    assert n_parts > 10
    assert joined_after == [0] + [1] * (n_parts - 1)
    assert counts(found) == counts(whole(files, Action.QUEUE))


def test_an_access_that_never_completes_is_abandoned_as_in_a_whole_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits through several parts; until then none joins."""
    events = mixed_workload(1500)
    orphans = [Event(e.time, 8 * i + 1, 512) for i, e in enumerate(events[50:4000:900])]
    trace = tmp_path / "t"
    trace.write_bytes(packed(sorted([*events, *orphans], key=lambda e: e.time)))
    found, n_parts = in_parts([trace], Action.QUEUE, 20_000, 4096)
    assert n_parts > 10
    assert counts(found) == counts(whole([trace], Action.QUEUE))
    monkeypatch.setattr(blktrace_joining, "MAX_UNJOINED", 2)
    assert counts(in_parts([trace], Action.QUEUE, 20_000, 4096)[0]) == counts(found)


def test_losses_of_a_cpu_that_is_missing_in_whole_parts(tmp_path: Path) -> None:
    """Its records 1, 4 and 5 are in the first, a middle and the last part."""
    events = mixed_workload(1500)
    records = [e.packed(i) for i, e in enumerate((e for e in events if e.cpu == 0), 1)]
    for number, at in ((5, -20), (4, 1500), (1, 20)):
        records.insert(at, message(number, cpu=SELDOM))
    trace = tmp_path / "t"
    trace.write_bytes(b"".join(records))
    found, n_parts = in_parts([trace], Action.QUEUE, 20_000, 4096)
    assert n_parts > 5
    assert found.lost == 2
    assert counts(found) == counts(whole([trace], Action.QUEUE))


def two_parts(trace: Path, before: bytes, after: bytes) -> list[Part]:
    """A trace that is cut between ``before`` and ``after``."""
    trace.write_bytes(before + after)
    with TraceStream(trace) as stream:
        layout = layout_of([stream])
    assert layout is not None
    cuts = ((0, len(before)), (len(before), None))
    return [Part((trace,), layout, made.Q, (begin,), (end,), OVER) for begin, end in cuts]


def joined(parts: list[Part]) -> PartialProfile:
    return joined_parts(iter(parts), parts[0].layout, parts[0].counted_action, 1, lambda _: None)


COMPLETE = packed([Event(100, 9000), Event(200, 9000, what=made.C)])
"""An access with its completion: without any completion a part cannot be followed alone."""


def test_parts_do_not_join_if_they_completed_different_accesses(tmp_path: Path, joined_after: list[int]) -> None:
    """A request over sectors 0 to 15 consists of accesses at 0 and 8.

    The access at 0 was queued before the cut. A reader that does not know it treats the request as all accesses
    within it, including the one at 2. Both readers then have the same accesses and the same number of completions.
    Only a latency shows the difference.
    """
    before = [Event(1000, sector=0)]
    first_block = [
        Event(2000, sector=5000),
        Event(2010, sector=2, nbytes=2048),
        Event(2020, sector=8),
        Event(2500, sector=0, nbytes=8192, what=made.C),
    ]
    second_block = [
        Event(3000, sector=6000),
        Event(4000, sector=2, nbytes=2048, what=made.C),
        Event(4010, sector=6000, what=made.C),
        Event(4020, sector=5000, what=made.C),
    ]
    trace = tmp_path / "t"
    filler = message() * 20
    after = packed(first_block) + filler + packed(second_block) + 2 * filler
    found = joined(two_parts(trace, COMPLETE + packed(before), after))
    assert joined_after == [0, 2]
    assert counts(found) == counts(whole([trace], Action.QUEUE))


def test_parts_do_not_join_before_both_saw_completions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined_after: list[int]
) -> None:
    """An access may be abandoned before the first completion. A reader that has seen no completion does not
    know what is in flight at that access. One that has seen completions before the cut does know it, although
    the same accesses wait in both."""
    monkeypatch.setattr(blktrace_parts, "FIRST_BLOCKS", (1000, 48 * (MAX_HELD + 1000), 1000))
    monkeypatch.setattr(blktrace_reader, "BLOCK_NBYTES", 48 * (MAX_HELD + 1000))
    many = Event(1000).packed(0) * (MAX_HELD + 100)
    trace = tmp_path / "t"
    found = joined(two_parts(trace, COMPLETE, many + packed([Event(2000, what=made.C)]) + message() * 1000))
    assert joined_after == [0, 2]
    assert counts(found) == counts(whole([trace], Action.QUEUE))


def test_a_part_without_completions_in_its_first_blocks_is_not_followed_to_its_end(tmp_path: Path) -> None:
    late = packed([Event(2000 + i, 8 * i) for i in range(100)]) + COMPLETE
    parts = two_parts(tmp_path / "t", COMPLETE, late)
    assert follow_alone(parts[0]) is not None
    assert follow_alone(parts[1]) is None


def test_sequences_that_restart_in_a_section_followed_twice_are_not_a_loss(
    tmp_path: Path, joined_after: list[int]
) -> None:
    """Two concatenated recordings: the part after the cut begins with number 101 of a CPU. At the position
    where it joins, that CPU is at number 18. Nothing was lost in between."""
    trace = tmp_path / "t"
    before = COMPLETE + b"".join(message(number) for number in range(3, 101))
    after = message(101) + message(102) + COMPLETE + b"".join(message(number) for number in range(3, 101))
    found = joined(two_parts(trace, before, after))
    assert joined_after == [0, 1]
    assert found.lost == 0
    assert counts(found) == counts(whole([trace], Action.QUEUE))


def test_without_completions_the_file_stays_whole(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    trace.write_bytes(packed([e for e in mixed_workload(1500) if e.what != made.C]))
    assert counts(in_parts([trace], Action.QUEUE, 20_000, 4096)[0]) == counts(whole([trace], Action.QUEUE))


def test_records_in_a_payload_are_not_a_cut(tmp_path: Path) -> None:
    """Every message contains some, so that most positions look right but are wrong."""
    events = mixed_workload(300)
    decoys = [
        Event(e.time, what=2, category=made.NOTIFY, nbytes=0, payload=packed([Event(i), Event(i)]))
        for i, e in enumerate(events)
    ]
    trace = tmp_path / "t"
    trace.write_bytes(packed([e for pair in zip(events, decoys, strict=True) for e in pair]))
    for part_nbytes in range(2000, 9000, 500):
        found, _ = in_parts([trace], Action.QUEUE, part_nbytes, 4096)
        assert counts(found) == counts(whole([trace], Action.QUEUE))


@pytest.mark.parametrize("damage", [b"", b"GIF89a" * 30])
def test_damage_is_named_with_its_position_in_the_file(
    damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = packed(mixed_workload(1500))
    trace = tmp_path / "t"
    trace.write_bytes(content + damage if damage else content[:-7])
    monkeypatch.setattr(blktrace_parts, "PART_NBYTES", 20_000)
    with pytest.raises(InputError) as caught:
        profile_files([trace])
    last = len(content) if damage else len(content) - 48
    assert caught.value.where == f"{trace}, byte {last}"
