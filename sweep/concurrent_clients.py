"""Run a workload on several clients at once: one thread per client, all in step, none left behind."""

import ctypes
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cephfit.core.errors import CephfitError, ClusterError
from cephfit.core.protocols import Client, RunsTogether, Workload

Result = tuple[float, Mapping[str, Any]]
"""Value of the metric, and the program's output, of one client."""

_UNWIND_SECONDS = 1.0
"""Time for a thread to notice its end by itself, before the programs that it waits for are killed."""


class Lockstep:
    """Holds concurrent clients of one workload in step around the parts of a run that are not measured.

    It is the workload's ``unmeasured``. The clients enter such a part together, and leave it together. So none is
    measured while another one starts, stops, or has the limits of the disks lifted. With one client it is only the
    shared context.

    Args:
        shared: context manager for the whole cluster, entered once for all clients.
    """

    def __init__(self, shared: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self._shared = shared
        self._barrier: threading.Barrier | None = None
        self._lock = threading.Lock()
        self._within = 0
        self._entered = ExitStack()

    @contextmanager
    def holding(self, n: int) -> Iterator[threading.Barrier]:
        """Hold ``n`` threads in step during the block; yield the barrier, which the first failure aborts."""
        self._barrier = threading.Barrier(n)
        try:
            yield self._barrier
        finally:
            self._barrier = None
            with self._lock:  # a thread that was ended may not have come to it
                self._within = 0
                self._entered.close()

    def between(self) -> AbstractContextManager[object]:
        """Return a block during which no thread enters or leaves the shared context."""
        return self._lock

    @contextmanager
    def __call__(self) -> Iterator[None]:
        barrier = self._barrier
        if barrier is None:
            with self._shared():
                yield
            return
        wait(barrier)
        with self._lock:
            _raise_if_ended()
            if not self._within:
                self._entered.enter_context(self._shared())
            self._within += 1
        try:
            wait(barrier)
            yield
        finally:
            with self._lock:
                _raise_if_ended()
                self._within -= 1
                if not self._within:
                    self._entered.close()
        wait(barrier)


def wait(barrier: threading.Barrier) -> None:
    """Wait for the other clients.

    Raises:
        OtherClientError: one of them failed.
    """
    try:
        barrier.wait()
    except threading.BrokenBarrierError:
        raise OtherClientError("another client failed") from None


class OtherClientError(ClusterError):
    """The run ended because another client failed, which has the cause."""


class _EndedError(BaseException):
    """Ends the thread of a client when the program is interrupted."""


def _raise_if_ended() -> None:
    """Raise ``_EndedError`` here if it is due in this thread: the interpreter looks for it at calls and loops."""
    for _ in range(2):
        pass


@dataclass(slots=True)
class _Run:
    """The run on one client.

    ``is_over`` is set at the end of its thread. ``Thread.join`` is not used: when a signal interrupts it, Python
    3.11 takes a thread that still runs for one that has ended (CPython issue 90882).
    """

    client: Client
    result: Result | None = None
    error: BaseException | None = None
    thread: threading.Thread = field(default_factory=threading.Thread)
    is_over: threading.Event = field(default_factory=threading.Event)


def run_together(
    workload: Workload, clients: Sequence[Client], seconds: float, *, seeds: Sequence[int], lockstep: Lockstep
) -> dict[str, Result]:
    """Run a prepared workload on all clients at once; return the result of each by the client's name.

    Args:
        workload: one that runs on several clients itself (``RunsTogether``) does so; else each gets a thread.
        clients: at least two, each with its own volume.
        seconds: of the measured part.
        seeds: of each client's random choices.
        lockstep: the workload's ``unmeasured``.

    Raises:
        CephfitError: a client failed; its first error. The others end at their next common step.
    """
    if isinstance(workload, RunsTogether):
        results = workload.run_together(clients, seconds, seeds=seeds)
        return dict(zip((c.name for c in clients), results, strict=True))
    runs = [_Run(client) for client in clients]
    with lockstep.holding(len(runs)) as barrier:

        def work(run: _Run, seed: int) -> None:
            try:
                wait(barrier)
                run.result = workload.run(run.client, seconds, seed=seed)
            except BaseException as error:
                run.error = error
                barrier.abort()
            finally:
                run.is_over.set()

        for run, seed in zip(runs, seeds, strict=True):
            run.thread = threading.Thread(
                target=work, args=(run, seed), name=f"client {run.client.name}", daemon=True
            )
        started: list[_Run] = []
        try:
            for run in runs:
                run.thread.start()
                started.append(run)
            for run in runs:
                run.is_over.wait()
        except BaseException:
            barrier.abort()
            _end(started, lockstep)
            raise
    _raise_first([run for run in runs if run.error is not None])
    return {run.client.name: run.result for run in runs if run.result is not None}


def _raise_first(failed: Sequence[_Run]) -> None:
    """Raise the error of the client that failed first, named; one that only followed counts last."""
    causes = [run for run in failed if not isinstance(run.error, OtherClientError)] or failed
    for run in causes:
        assert run.error is not None
        if not isinstance(run.error, CephfitError):
            raise run.error
    if causes:
        error = causes[0].error
        assert isinstance(error, CephfitError)
        name = causes[0].client.name
        if name not in (error.where or ""):
            error.where = f"client {name}, {error.where}" if error.where else f"client {name}"
        raise error


def _end(started: Sequence[_Run], lockstep: Lockstep) -> None:
    """End the threads of clients: each unwinds, which ends its programs; return when all have ended.

    A thread that enters or leaves the shared context does so completely first: else the limits of the disks, for
    example, would stay lifted.

    A thread that waits for a program without a time limit does not notice. So the program that it started last is
    killed after a moment, then the one before. Those that it starts to clean up are left alone.
    """
    with lockstep.between():
        runs = [run for run in started if not run.is_over.is_set()]
        programs = [_programs_of(run.thread) for run in runs]
        for run in runs:
            ended = ctypes.py_object(_EndedError)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(run.thread.ident or 0), ended)
    while any(programs):
        until = time.monotonic() + _UNWIND_SECONDS
        for run in runs:
            run.is_over.wait(max(0.0, until - time.monotonic()))
        for run, left in zip(runs, programs, strict=True):
            pid = left.pop() if left else None
            if not run.is_over.is_set() and pid in _programs_of(run.thread):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
    for run in runs:
        # A thread that was about to end may end without setting the event.
        while not run.is_over.wait(_UNWIND_SECONDS) and Path(f"/proc/self/task/{run.thread.native_id}").exists():
            pass


def _programs_of(thread: threading.Thread) -> list[int]:
    """Return the child processes that a thread of this process has started, the first one first."""
    try:
        text = Path(f"/proc/self/task/{thread.native_id}/children").read_text()
    except OSError:  # the thread has ended, or this kernel does not list them
        return []
    return [int(pid) for pid in text.split()]


@dataclass(frozen=True, slots=True)
class ClientRates:
    """The rates of the clients of a run, or their means over several runs.

    Attributes:
        lowest, median, highest: of the clients.
        fairness: Jain's index (sum of rates)^2 / (n x sum of their squares): 1 where all are equal, 1/n where one
            client has everything. R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984.
    """

    lowest: float
    median: float
    highest: float
    fairness: float

    @classmethod
    def of(cls, rates: Sequence[float]) -> "ClientRates":
        ordered = sorted(rates)
        middle = (len(ordered) - 1) / 2
        median = (ordered[math.floor(middle)] + ordered[math.ceil(middle)]) / 2
        squares = len(ordered) * math.fsum(rate * rate for rate in ordered)
        fairness = math.fsum(ordered) ** 2 / squares if squares else 1.0
        return cls(ordered[0], median, ordered[-1], fairness)

    @classmethod
    def mean(cls, runs: Sequence["ClientRates"]) -> "ClientRates":
        n = len(runs)
        return cls(
            math.fsum(r.lowest for r in runs) / n,
            math.fsum(r.median for r in runs) / n,
            math.fsum(r.highest for r in runs) / n,
            math.fsum(r.fairness for r in runs) / n,
        )
