"""Which event counts where the user names none: Q, or C in a trace of completions only."""

import io
import json
import os
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_more_formats import counts
from test_requeues import BLKPARSE_LINE, TRACEPOINT, as_text
from trace_maker import C, D, Event, Q, mixed_workload, packed

from cephfit.cli.trace.trace_commands import command as trace_command
from cephfit.core.errors import InputError
from cephfit.core.values.profile import Profile
from cephfit.traces import profile_files, profiles_by_disk
from cephfit.traces.access_source import AccessSource, omitted_disks
from cephfit.traces.counting import shares
from cephfit.traces.readers.block_events.block_layer import Action

WHY = "the trace has no Q events"
FORMATS = ["blktrace", "blkparse", "block-events"]


def in_format(name: str, events: list[Event]) -> bytes:
    if name == "blktrace":
        return packed(events)
    return as_text(events, BLKPARSE_LINE if name == "blkparse" else TRACEPOINT).encode()


@cache
def completions(n: int = 200) -> list[Event]:
    return [e for e in mixed_workload(n) if e.what == C]


def workload(n: int) -> list[Event]:
    return [e for e in mixed_workload(n) if e.what in (Q, D, C)]


def completions_first(n: int) -> list[Event]:
    """Completions of accesses before the recording, then a whole workload after them."""
    before, after = completions(n), workload(50)
    shift = max(e.time for e in before) + 1_000_000
    return before + [replace(e, time=e.time + shift) for e in after]


def figures(found: Profile) -> dict[str, object]:
    """Return a profile without its name and files, and the reason for its action."""
    document = json.loads(json.dumps(found.to_json()))
    del document["name"], document["description"]["sources"]
    document["description"].pop("why_action", None)
    return document


def written(tmp_path: Path, content: bytes, name: str = "t") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> object:
    """Make standard input contain bytes that cannot be read twice."""

    class _Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    def give(content: bytes) -> Path:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(_Pipe(content)))
        return Path("-")

    return give


@pytest.mark.parametrize("demands", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_completions_alone_are_counted_by_themselves(tmp_path: Path, name: str, demands: bool) -> None:
    path = written(tmp_path, in_format(name, completions()))
    found = profile_files([path], demands=demands)
    assert sum(counts(found)) == len(completions())
    assert (found.description["action"], found.description["why_action"]) == ("C", WHY)
    assert figures(found) == figures(profile_files([path], action=Action.COMPLETE, demands=demands))


@pytest.mark.parametrize("name", FORMATS)
def test_an_action_that_the_user_names_stays(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, in_format(name, completions()))
    with pytest.raises(InputError, match="no read or write with action Q") as caught:
        profile_files([path], action=Action.QUEUE)
    assert "use --action C" in caught.value.remedy
    assert "why_action" not in profile_files([path], action=Action.COMPLETE).description


@pytest.mark.parametrize("name", FORMATS)
def test_one_late_access_makes_q_count(tmp_path: Path, name: str) -> None:
    """Many blocks hold completions only before the first Q: the whole file decides."""
    path = written(tmp_path, in_format(name, completions_first(45_000)))
    assert path.stat().st_size > 2 << 20
    found = profile_files([path])
    assert found.description["action"] == "Q"
    assert sum(counts(found)) == 50
    assert found.to_json() == profile_files([path], action=Action.QUEUE).to_json()


@pytest.mark.parametrize("part_nbytes", [1 << 12, 1 << 14])
@pytest.mark.parametrize("content", [completions(2000), completions_first(2000)])
def test_the_choice_does_not_depend_on_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: list[Event], part_nbytes: int
) -> None:
    path = written(tmp_path, in_format("blkparse", content))
    whole = profile_files([path])
    monkeypatch.setattr(shares, "PART_NBYTES", part_nbytes)
    assert path.stat().st_size > 4 * part_nbytes
    assert profile_files([path]).to_json() == whole.to_json()


def test_consecutive_parts_of_which_only_the_last_has_a_q(tmp_path: Path) -> None:
    text = in_format("blkparse", completions_first(500))
    cut = len(text) // 2 + 7  # within a line
    files = [written(tmp_path, text[:cut], "a"), written(tmp_path, text[cut:], "b")]
    assert profile_files(files, parts=True).description["action"] == "Q"
    text = in_format("blkparse", completions(500))
    files = [written(tmp_path, text[:cut], "a"), written(tmp_path, text[cut:], "b")]
    found = profile_files(files, parts=True)
    assert (found.description["action"], found.n_accesses) == ("C", len(completions(500)))


def test_one_recording_with_accesses_decides_for_all(tmp_path: Path) -> None:
    """The CPU that handles interrupts writes completions only; its file does not change what counts."""
    events = workload(100)
    (tmp_path / "sda.blktrace.0").write_bytes(packed([e for e in events if e.what == C]))
    (tmp_path / "sda.blktrace.1").write_bytes(packed([e for e in events if e.what != C]))
    found = profile_files([tmp_path])
    assert found.description["action"] == "Q"
    assert "latency_us" in found.description["histograms"]
    other = written(tmp_path, packed(completions()), "sdb")
    assert profile_files([tmp_path / "sda", other]).description["action"] == "Q"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("n", [20, 3000])
def test_a_pipe_of_completions(tmp_path: Path, piped: object, name: str, n: int) -> None:
    content = in_format(name, completions(n))
    found = profile_files([piped(content)])  # type: ignore[operator]
    assert found.description["why_action"] == WHY
    assert figures(found) == figures(profile_files([written(tmp_path, content)]))


@pytest.mark.parametrize("name", FORMATS)
def test_a_pipe_that_begins_with_completions_is_not_guessed(piped: object, name: str) -> None:
    content = in_format(name, completions_first(3000))
    with pytest.raises(InputError, match="begins with completions only, but has Q events later") as caught:
        profile_files([piped(content)])  # type: ignore[operator]
    assert "--action Q" in caught.value.remedy
    with pytest.raises(InputError, match="begins with completions only"):
        list(AccessSource([piped(content)]))  # type: ignore[operator]
    few = in_format(name, completions_first(20))
    assert profile_files([piped(few)]).description["action"] == "Q"  # type: ignore[operator]


def test_issued_accesses_without_q_still_need_the_option(tmp_path: Path) -> None:
    text = in_format("blkparse", [e for e in workload(50) if e.what != Q])
    with pytest.raises(InputError, match="no read or write with action Q") as caught:
        profile_files([written(tmp_path, text)])
    assert "use --action D" in caught.value.remedy


def test_accesses_for_conversion_and_each_disk(tmp_path: Path) -> None:
    path = written(tmp_path, in_format("blkparse", completions()))
    source = AccessSource([path])
    assert sum(len(batch) for batch in source) == len(completions())
    assert f"action C is counted: {WHY}" in source.notes
    assert not omitted_disks([path])
    (found,) = profiles_by_disk([path])
    assert found.description["why_action"] == WHY
    with pytest.raises(InputError, match="no accesses"):
        list(AccessSource([path], action=Action.QUEUE))


def test_the_terminal_and_the_json_state_the_reason(tmp_path: Path) -> None:
    path = written(tmp_path, in_format("blkparse", completions()))
    shown = CliRunner().invoke(trace_command, ["profile", str(path)])
    line = next(line for line in shown.stdout.splitlines() if line.startswith("counted:"))
    assert line.startswith(f"counted: action C, completed: {WHY}")
    document = json.loads(CliRunner().invoke(trace_command, ["profile", str(path), "--json"]).stdout)
    assert document["description"]["why_action"] == WHY
    refused = CliRunner().invoke(trace_command, ["profile", str(path), "--action", "Q"])
    assert isinstance(refused.exception, InputError) or refused.exit_code == 2


def test_the_completions_of_a_real_recording(tmp_path: Path, samples: Path) -> None:
    text = (samples / "blktrace" / "takeoverjp" / "blkparse-1.2.0.derived.txt").read_bytes()
    lines = [line for line in text.splitlines(keepends=True) if line.split()[5:6] == [b"C"]]
    path = written(tmp_path, b"".join(lines))
    found = profile_files([path])
    assert found.description["events"] == {"C": 963} == {"C": len(lines)}
    assert found.n_accesses == sum(counts(found)) > 900
    whole = profile_files([samples / "blktrace" / "takeoverjp" / "sample.blktrace.0"])
    assert whole.description["action"] == "Q" and "why_action" not in whole.description


def test_a_named_pipe_is_read_once(tmp_path: Path) -> None:
    from threading import Thread

    pipe, content = tmp_path / "pipe", in_format("blkparse", completions(3000))
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    found = profile_files([pipe])
    writer.join()
    assert found.n_accesses == len(completions(3000))
