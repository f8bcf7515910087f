"""The progress display: bars on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from cephfit.core.protocols import NullProgress, Progress


class _RichProgress:
    """Bars on standard error: task, progress, current step, remaining time.

    Args:
        shared: another display, whose bars are shared; None creates a separate display.
        name: prefix of every text.
    """

    def __init__(self, shared: "_RichProgress | None" = None, *, name: str = "") -> None:
        self._stack: list[Any] = []
        self._name = f"{name}: " if name else ""
        if shared is not None:
            self._bars: Any = shared._bars
            return
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            console=Console(stderr=True),
        )

    def __enter__(self) -> "_RichProgress":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def start(self, what: str, total: float | None = None) -> None:
        self._stack.append(self._bars.add_task(self._name + what, total=total, detail=""))

    def advance(self, steps: float = 1.0, detail: str = "") -> None:
        if self._stack:
            self._bars.update(self._stack[-1], advance=steps, detail=detail)

    def note(self, message: str) -> None:
        self._bars.console.print(self._name + message, markup=False, emoji=False, highlight=False)

    def done(self) -> None:
        task = self._stack.pop()
        self._bars.update(task, detail="")
        self._bars.stop_task(task)
        self._bars.remove_task(task)


class _NotesOnly(NullProgress):
    """The display without a terminal: no bars; permanent lines go to standard error."""

    def __init__(self, name: str = "") -> None:
        self._name = f"{name}: " if name else ""

    def note(self, message: str) -> None:
        click.echo(self._name + message, err=True)


@contextmanager
def progress_display() -> Iterator[Progress]:
    """The progress display of one command; without bars if standard error is not a terminal."""
    if sys.stderr.isatty():
        with _RichProgress() as bars:
            yield bars
    else:
        yield _NotesOnly()


@contextmanager
def progress_displays(names: Sequence[str]) -> Iterator[Mapping[str, Progress]]:
    """One display for several concurrent tasks; returns their progress by name."""
    if sys.stderr.isatty():
        with _RichProgress() as bars:
            yield {name: _RichProgress(bars, name=name) for name in names}
    else:
        yield {name: _NotesOnly(name) for name in names}
