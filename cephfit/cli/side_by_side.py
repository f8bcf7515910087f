"""Several targets measured side by side: one process for each, shown and stored together.

A process of its own keeps what belongs to one cluster (librados, locks, programs that it started) away from the
others. Each tells this process how far it is through a pipe. When this process is gone, the pipe is closed and
they go too, at once, as if they had been killed themselves: everything that was measured is in the store.
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

from cephfit.cli.sweep_run import Request, measure
from cephfit.errors import CephfitError

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from cephfit.protocols import Progress

_SECONDS_TO_END = 120.0
"""After an interrupt: a run of fio is ended and its volume let go of well within this."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How one target's part ended.

    Attributes:
        target: as it was named.
        document: how far its run is; None if it did not come to its end.
        error: why not.
        interrupted: a person ended it.
    """

    target: str
    document: Mapping[str, Any] | None
    error: CephfitError | None = None
    interrupted: bool = False


def measure_side_by_side(
    request: Request, targets: Sequence[str], shown: Mapping[str, Progress]
) -> list[Finished]:
    """Measure on all targets at once. One that fails does not disturb the others.

    Args:
        request: the same for all.
        targets: as ``open_target`` takes them, each once.
        shown: where the progress of each is shown.

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
            process = context.Process(target=_measure_there, args=(request, target, theirs), name=target)
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
    """Show what the processes tell, until each has told how it ended, or has none left to tell."""
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
                ended[target] = Finished(target, None, _error_of(*arguments))
            elif word == "interrupted":
                ended[target] = Finished(target, None, interrupted=True)
            else:
                getattr(shown[target], word)(*arguments)


def _error_of(kind: str, what: str, where: str, remedy: str) -> CephfitError:
    kinds = {c.__name__: c for c in CephfitError.__subclasses__()}
    return kinds.get(kind, CephfitError)(what, where=where, remedy=remedy)


def _died(process: SpawnProcess) -> CephfitError:
    code = process.exitcode
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    return CephfitError(
        f"the process that measured this target {how}",
        where=process.name,
        remedy="run the same command again: it continues from what is stored",
    )


class _Told:
    """Implements ``Progress`` by telling it to the process that shows it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def tell(self, word: str, *arguments: Any) -> None:
        with self._lock:
            self._pipe.send((word, arguments))

    def start(self, what: str, total: float | None = None) -> None:
        self.tell("start", what, total)

    def advance(self, steps: float = 1.0, detail: str = "") -> None:
        self.tell("advance", steps, detail)

    def note(self, message: str) -> None:
        self.tell("note", message)

    def done(self) -> None:
        self.tell("done")


def _measure_there(request: Request, target: str, pipe: Connection) -> None:
    """The other process. An interrupt from the keyboard reaches only the first one, which passes it on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_go_with_the_first, args=(pipe,), daemon=True).start()
    told = _Told(pipe)
    try:
        told.tell("document", measure(request, target, told))
    except CephfitError as error:
        told.tell("error", type(error).__name__, error.what, error.where, error.remedy)
    except KeyboardInterrupt:
        with suppress(OSError):
            told.tell("interrupted")


def _interrupt(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _go_with_the_first(pipe: Connection) -> None:
    """Nobody ever sends anything this way: what ends the waiting is the end of the process on the other side."""
    with suppress(EOFError, OSError):
        pipe.recv()
    os.kill(os.getpid(), signal.SIGKILL)
