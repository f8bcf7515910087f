"""Wherever a blktrace recording is cut into parts, what they give together is what the whole gives."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import trace_maker as made
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_maker import Event, mixed_workload, packed

from cephfit.errors import InputError
from cephfit.traces import profile_files
from cephfit.traces.description.recording import Counting, PartialProfile
from cephfit.traces.files.stream import TraceStream
from cephfit.traces.parts import blktrace_joining, blktrace_parts
from cephfit.traces.parts.blktrace_joining import joined_parts
from cephfit.traces.parts.blktrace_parts import parts_of
from cephfit.traces.readers import blktrace_cuts, blktrace_reading
from cephfit.traces.readers.blktrace import BlktraceReader
from cephfit.traces.readers.blktrace_reading import layout_of
from cephfit.traces.readers.block_layer import Action

SDB = made.SDA + (1 << 20)
SELDOM = 9
"""A CPU of which most parts have no record at their beginnings."""


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    """Blocks and parts of some hundred bytes, and never a word of reading the rest as a whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blktrace_reading, "MAX_PAYLOAD", 200)
        patch.setattr(blktrace_parts, "FIRST_BLOCKS", (1000, 1000, 1000))
        patch.setattr(blktrace_joining, "MAX_APART", 1 << 30)
        patch.setattr(blktrace_cuts, "NBYTES_OF_FILE", 1)
        yield


def whole(files: list[Path], action: Action) -> PartialProfile:
    counting, streams = Counting(None), [TraceStream(file) for file in files]
    for batch in BlktraceReader(action).read_together(streams):
        counting.add(batch)
    for stream in streams:
        stream.close()
    return counting.partial()


def in_parts(files: list[Path], action: Action, part_nbytes: int, block_nbytes: int) -> tuple[PartialProfile, int]:
    """What parts give, and how many there were."""
    streams, wanted = [TraceStream(file) for file in files], BlktraceReader(action).wanted
    layout = layout_of(streams)
    for stream in streams:
        stream.close()
    assert layout is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blktrace_cuts, "PART_NBYTES", part_nbytes)
        patch.setattr(blktrace_reading, "BLOCK_NBYTES", block_nbytes)
        parts = list(parts_of(files, layout, wanted))
        return joined_parts(iter(parts), layout, wanted, 2, lambda _: None), len(parts)


def told(partial: PartialProfile) -> tuple[object, ...]:
    """All that was counted."""
    disks = {name: tally.joint.tolist() for name, tally in partial.disks.items()}
    return list(disks), disks, partial.skipped, partial.events, partial.stacked, partial.lost


JOINING = ["one", "one", "one", "merged", "split", "dm", "other", "stray"]
"""What leaves no access waiting for ever where those that are queued count."""
ALL = [*JOINING, "again", "lost"]


def recording(n: int, rng: np.random.Generator, kinds: list[str], lbn_max: int) -> list[Event]:
    """Requests that are merged, split, queued again and lost, overlap, and pass from dm to a disk;
    messages, discards and other records between them; all on one to three CPUs."""
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


def numbered(events: list[Event], rng: np.random.Generator, lost: float) -> list[bytes]:
    """Records with the numbers of their CPUs, of which some are left out, and some have none."""
    numbers = dict.fromkeys([*range(3), SELDOM], 0)
    records = []
    for event in events:
        numbers[event.cpu] += 1 + int(rng.random() < lost) * int(rng.integers(1, 9))
        records.append(event.packed(numbers[event.cpu] if rng.random() > lost / 2 else 0))
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
    """Files of CPUs hold what other numbers say, and the clock steps back at times."""
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
        assert told(found) == told(whole(files, action))


@pytest.mark.parametrize("n_files", [1, 2])
def test_most_parts_join_after_their_first_block(
    n_files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the tests above would show nothing but that one thread can follow all of it."""
    events = mixed_workload(2000)
    files = [tmp_path / f"sda.blktrace.{i}" for i in range(n_files)]
    for i, file in enumerate(files):
        file.write_bytes(packed([e for e in events if e.cpu == i or n_files == 1]))
    joined: list[int] = []
    join = blktrace_joining.Joining._join
    monkeypatch.setattr(
        blktrace_joining.Joining, "_join", lambda self, f, n: (joined.append(n), join(self, f, n))[1]
    )
    monkeypatch.setattr(blktrace_parts, "FIRST_BLOCKS", (3000, 3000))
    found, n_parts = in_parts(files, Action.QUEUE, 20_000, 4096)
    assert n_parts > 10
    assert joined == [0] + [1] * (n_parts - 1)
    assert told(found) == told(whole(files, Action.QUEUE))


def test_an_access_that_never_completes_is_given_up_as_in_one_stretch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits through several parts; until then none joins."""
    events = mixed_workload(1500)
    orphans = [Event(e.time, 8 * i + 1, 512) for i, e in enumerate(events[50:4000:900])]
    trace = tmp_path / "t"
    trace.write_bytes(packed(sorted([*events, *orphans], key=lambda e: e.time)))
    found, n_parts = in_parts([trace], Action.QUEUE, 20_000, 4096)
    assert n_parts > 10
    assert told(found) == told(whole([trace], Action.QUEUE))
    monkeypatch.setattr(blktrace_joining, "MAX_APART", 2)
    assert told(in_parts([trace], Action.QUEUE, 20_000, 4096)[0]) == told(found)


def test_losses_of_a_cpu_that_whole_parts_know_nothing_of(tmp_path: Path) -> None:
    """Its records 1, 4 and 5 are in the first part, the middle and the last one."""
    events = mixed_workload(1500)
    records = [e.packed(i) for i, e in enumerate((e for e in events if e.cpu == 0), 1)]
    for number, at in ((5, -20), (4, 1500), (1, 20)):
        message = Event(0, what=2, category=made.NOTIFY, nbytes=0, cpu=SELDOM)
        records.insert(at, message.packed(number))
    trace = tmp_path / "t"
    trace.write_bytes(b"".join(records))
    found, n_parts = in_parts([trace], Action.QUEUE, 20_000, 4096)
    assert n_parts > 5
    assert found.lost == 2
    assert told(found) == told(whole([trace], Action.QUEUE))


def test_without_completions_the_file_stays_whole(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    trace.write_bytes(packed([e for e in mixed_workload(1500) if e.what != made.C]))
    assert told(in_parts([trace], Action.QUEUE, 20_000, 4096)[0]) == told(whole([trace], Action.QUEUE))


def test_records_in_a_payload_are_no_place_for_a_cut(tmp_path: Path) -> None:
    """Every message holds some, so that most places look right that are not."""
    events = mixed_workload(300)
    decoys = [
        Event(e.time, what=2, category=made.NOTIFY, nbytes=0, payload=packed([Event(i), Event(i)]))
        for i, e in enumerate(events)
    ]
    trace = tmp_path / "t"
    trace.write_bytes(packed([e for pair in zip(events, decoys, strict=True) for e in pair]))
    for part_nbytes in range(2000, 9000, 500):
        found, _ = in_parts([trace], Action.QUEUE, part_nbytes, 4096)
        assert told(found) == told(whole([trace], Action.QUEUE))


@pytest.mark.parametrize("damage", [b"", b"GIF89a" * 30])
def test_damage_is_named_with_its_place_in_the_file(
    damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = packed(mixed_workload(1500))
    trace = tmp_path / "t"
    trace.write_bytes(content + damage if damage else content[:-7])
    monkeypatch.setattr(blktrace_cuts, "PART_NBYTES", 20_000)
    with pytest.raises(InputError) as caught:
        profile_files([trace])
    last = len(content) if damage else len(content) - 48
    assert caught.value.where == f"{trace}, byte {last}"
