"""The concurrent measurement of several targets.

Each target is measured in a separate process, which isolates what belongs to one cluster: librados, locks, and
started programs. Each process reports its progress to the parent through a pipe. If the parent ends, the pipe is
closed and the processes are killed at once. Everything that was measured is in the store.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from cephfit.core.errors import CephfitError
from cephfit.operations.measuring.sweep_measurement import Request

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from cephfit.core.protocols import Progress

_SECONDS_TO_END = 120.0
"""After an interrupt: enough to end a run of fio and release its volume."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How the measurement of one target ended.

    Attributes:
        target: the target as given.
        document: progress of its run; None if it did not finish.
        error: why it failed.
        interrupted: whether the user interrupted it.
    """

    target: str
    document: Mapping[str, Any] | None
    error: CephfitError | None = None
    interrupted: bool = False


def measure_concurrently(
    request: Request, targets: Sequence[str], shown: Mapping[str, Progress]
) -> list[Finished]:
    """Measure on all targets concurrently. A failing target does not disturb the others.

    Args:
        request: the same for all.
        targets: as for ``open_target``, without duplicates.
        shown: the progress display of each target.

    Returns:
        One entry per target, in their order.
    """
    context = multiprocessing.get_context("spawn")
    processes: dict[str, SpawnProcess] = {}
    pipes: dict[Connection, str] = {}
    ended: dict[str, Finished] = {}
    try:
        for target in targets:
            ours, theirs = context.Pipe()
            process = context.Process(target=_measure_in_process, args=(request, target, theirs), name=target)
            process.start()
            theirs.close()
            processes[target] = process
            pipes[ours] = target
        _listen(pipes, ended, shown)
    except KeyboardInterrupt:
        for process in processes.values():
            process.terminate()
        _listen(pipes, ended, shown, until=time.monotonic() + _SECONDS_TO_END)
        for target in targets:
            ended.setdefault(target, Finished(target, None, interrupted=True))
    finally:
        for target, process in processes.items():
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
            if target not in ended:
                ended[target] = Finished(target, None, _died(process))
        for pipe in pipes:
            pipe.close()
    return [ended[target] for target in targets]


def _listen(
    pipes: Mapping[Connection, str],
    ended: dict[str, Finished],
    shown: Mapping[str, Progress],
    until: float | None = None,
) -> None:
    """Show the progress of the processes, until each has reported its end or closed its pipe."""
    open_pipes = [pipe for pipe, target in pipes.items() if target not in ended]
    while open_pipes and (until is None or time.monotonic() < until):
        for pipe in wait(open_pipes, timeout=1.0):
            assert isinstance(pipe, Connection)
            target = pipes[pipe]
            try:
                word, arguments = pipe.recv()
            except (EOFError, OSError):
                open_pipes.remove(pipe)
                continue
            if word == "document":
                ended[target] = Finished(target, arguments[0])
            elif word == "error":
                what, where, remedy = arguments
                ended[target] = Finished(target, None, CephfitError(what, where=where, remedy=remedy))
            elif word == "interrupted":
                ended[target] = Finished(target, None, interrupted=True)
            else:
                getattr(shown[target], word)(*arguments)


def _died(process: SpawnProcess) -> CephfitError:
    code = process.exitcode
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    return CephfitError(
        f"the process that measured this target {how}",
        where=process.name,
        remedy="run the same command again: it continues from the stored samples",
    )


class _PipeProgress:
    """Implements ``Progress`` by sending it to the process that shows it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def send(self, word: str, *arguments: Any) -> None:
        with self._lock:
            self._pipe.send((word, arguments))

    def start(self, what: str, total: float | None = None) -> None:
        self.send("start", what, total)

    def advance(self, steps: float = 1.0, detail: str = "") -> None:
        self.send("advance", steps, detail)

    def note(self, message: str) -> None:
        self.send("note", message)

    def done(self) -> None:
        self.send("done")


def _measure_in_process(request: Request, target: str, pipe: Connection) -> None:
    """Measure one target in a child process. Only the parent handles a keyboard interrupt, and passes it on."""
    from cephfit.cli.sweep.sweep_text import measure

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_exit_with_parent, args=(pipe,), daemon=True).start()
    progress = _PipeProgress(pipe)
    try:
        progress.send("document", measure(request, target, progress))
    except CephfitError as error:
        progress.send("error", error.what, error.where, error.remedy)
    except KeyboardInterrupt:
        with suppress(OSError):
            progress.send("interrupted")


def _interrupt(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _exit_with_parent(pipe: Connection) -> None:
    """Kill this process when the parent ends: the parent sends nothing, so ``recv`` returns only then."""
    with suppress(EOFError, OSError):
        pipe.recv()
    os.kill(os.getpid(), signal.SIGKILL)
