"""The contract suite of ``Progress``, run against every display."""

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import Pipe

import pytest

from cephfit.cli.sweep.concurrent_targets import _listen, _PipeProgress
from cephfit.core.protocols import NullProgress, Progress
from cephfit.operations.measuring.progress_display import progress_display, progress_displays

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
FIRST, SECOND = "lab:first", "lab:second"


@dataclass(frozen=True, slots=True)
class Display:
    """One implementation under test.

    Attributes:
        progress: that rooms report to.
        closed: ends the display and returns its output on standard error.
        prefix: of all its texts; None if it shows nothing.
        so_far: its output until now, if it shows current work.
    """

    progress: Progress
    closed: Callable[[], str]
    prefix: str | None = ""
    so_far: Callable[[], str] | None = None

    def shows(self, words: str) -> bool:
        """Whether words are shown, on displays that show any: bars are drawn a few times a second."""
        deadline = time.monotonic() + 5
        while self.so_far is not None and words not in self.so_far():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return self.so_far is not None


Capsys = pytest.CaptureFixture[str]
Opened = Callable[[], AbstractContextManager[Display]]


class Terminal:
    """Standard error on a terminal."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        self.file = os.fdopen(slave, "w", encoding="utf-8")
        self._written: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self._written.append(os.read(self._master, 65536))
            except OSError:  # the other end is closed
                return

    def so_far(self) -> str:
        """The output without control sequences."""
        return _CONTROL.sub("", b"".join(self._written).decode(errors="replace")).replace("\r\n", "\n")

    def close(self) -> None:
        if not self.file.closed:
            self.file.close()
            self._reader.join(10)
            os.close(self._master)


def null_progress(stack: ExitStack, patch: pytest.MonkeyPatch, capsys: Capsys) -> Display:
    return Display(NullProgress(), lambda: capsys.readouterr().err, prefix=None)


def no_terminal(stack: ExitStack, patch: pytest.MonkeyPatch, capsys: Capsys) -> Display:
    return Display(stack.enter_context(progress_display()), lambda: capsys.readouterr().err)


def one_of_several(stack: ExitStack, patch: pytest.MonkeyPatch, capsys: Capsys) -> Display:
    shown = stack.enter_context(progress_displays([FIRST, SECOND]))
    return Display(shown[SECOND], lambda: capsys.readouterr().err, prefix=f"{SECOND}: ")


def bars(stack: ExitStack, patch: pytest.MonkeyPatch, capsys: Capsys) -> Display:
    terminal = on_a_terminal(stack, patch)
    display = stack.enter_context(ExitStack())
    progress = display.enter_context(progress_display())
    return Display(progress, lambda: all_of(terminal, display), so_far=terminal.so_far)


def bars_among_others(stack: ExitStack, patch: pytest.MonkeyPatch, capsys: Capsys) -> Display:
    terminal = on_a_terminal(stack, patch)
    display = stack.enter_context(ExitStack())
    shown = display.enter_context(progress_displays([FIRST, SECOND]))
    shown[FIRST].start("another piece of work")
    return Display(shown[SECOND], lambda: all_of(terminal, display), f"{SECOND}: ", terminal.so_far)


def another_process(stack: ExitStack, patch: pytest.MonkeyPatch, capsys: Capsys) -> Display:
    """Both ends of the pipe are in this process."""
    shown = bars_among_others(stack, patch, capsys)
    ours, its = Pipe()
    faults: list[Exception] = []

    def listen() -> None:
        try:
            _listen({ours: SECOND}, {}, {SECOND: shown.progress})
        except Exception as fault:
            faults.append(fault)

    listener = threading.Thread(target=listen)
    listener.start()

    def close() -> str:
        its.close()
        listener.join(20)
        ours.close()
        assert not faults
        return shown.closed()

    stack.callback(lambda: None if its.closed else close())
    return replace(shown, progress=_PipeProgress(its), closed=close)


def on_a_terminal(stack: ExitStack, patch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal()
    stack.callback(terminal.close)
    world = stack.enter_context(patch.context())
    world.setenv("TERM", "xterm")
    world.setenv("COLUMNS", "160")
    world.setattr(sys, "stderr", terminal.file)
    return terminal


def all_of(terminal: Terminal, display: ExitStack) -> str:
    display.close()
    terminal.close()
    return terminal.so_far()


DISPLAYS = (null_progress, no_terminal, one_of_several, bars, bars_among_others, another_process)


@pytest.fixture(params=DISPLAYS, ids=lambda maker: maker.__name__)
def opened(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> Opened:
    """Open a display within the test, because in fixtures pytest has another standard error."""

    @contextmanager
    def open_it() -> Iterator[Display]:
        with ExitStack() as stack:
            yield request.param(stack, monkeypatch, capsys)

    return open_it


def test_notes_are_permanent_lines(opened: Opened) -> None:
    notes = ("A 4K-read, round 1, attempt 1 of 3: invalid on c0: OSD_DOWN", "50 %, 4 × 32K, [osd/class:hdd]")
    with opened() as display:
        display.progress.note("before any work")
        display.progress.start("sweep small", 3)
        for note in notes:
            display.progress.note(note)
            display.progress.advance()
        display.progress.done()
        display.progress.note("all is over")
        said = [line.rstrip().rpartition("\r")[2] for line in display.closed().splitlines()]
        for note in ("before any work", *notes, "all is over"):
            assert (f"{display.prefix}{note}" in said) == (display.prefix is not None), note


def test_tasks_are_nested(opened: Opened) -> None:
    """``done`` ends the last started task; the outer one is still shown."""
    with opened() as display:
        progress, has_bars = display.progress, display.so_far is not None
        progress.start("the outer work", 10)
        progress.advance(2.5, "a quarter")
        assert display.shows("a quarter") == has_bars
        progress.start("the inner work")
        progress.advance(detail="a step of many")
        assert display.shows("a step of many") == has_bars
        progress.done()
        progress.note("so much for that")
        progress.advance(2.5, "half of it")
        assert display.shows("half of it") == has_bars
        progress.done()
        assert "the inner work" not in display.closed().partition("half of it")[2], "it would appear below"


def test_texts_are_shown_without_markup(opened: Opened) -> None:
    """Names of files, targets and configurations may contain markup of the display."""
    with opened() as display:
        has_bars = display.so_far is not None
        display.progress.start("reading [/data/a:b:c.gz]", 2)
        assert display.shows("reading [/data/a:b:c.gz]") == has_bars
        display.progress.advance(1, "[/A] on lab:b:")
        assert display.shows("[/A] on lab:b:") == has_bars
        display.progress.note("lab:b: [bold] is applied")
        assert ("lab:b: [bold] is applied" in display.closed()) == (display.prefix is not None)


def test_estimates_may_be_wrong(opened: Opened) -> None:
    """More steps than the total, no steps, or steps before any task was started."""
    with opened() as display:
        progress = display.progress
        progress.advance(1, "nothing was begun")
        for total in (2, 0.0, None):
            progress.start("work", total)
            progress.advance(5)
            progress.advance(0)
            progress.done()
        progress.note("it continues")
        assert ("it continues" in display.closed()) == (display.prefix is not None)


def test_several_threads_may_report_at_once(opened: Opened) -> None:
    with opened() as display:
        progress = display.progress

        def report(number: int) -> None:
            for i in range(5):
                progress.advance()
                progress.note(f"note {number}.{i}")

        progress.start("work", 40)
        threads = [threading.Thread(target=report, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        progress.done()
        said = display.closed()
        for number in range(4):
            for i in range(5):
                assert (f"{display.prefix}note {number}.{i}\n" in said) == (display.prefix is not None)
