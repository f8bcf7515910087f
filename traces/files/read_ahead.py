"""An iterator that a thread reads ahead, so that two steps of reading a trace use two cores."""

import os
import threading
from collections.abc import Generator, Iterator
from queue import Full, Queue
from typing import Any, TypeVar

_T = TypeVar("_T")

_DEPTH = 2
"""The most items in the queue, which limits their memory."""
_WAIT_SECONDS = 0.05


def n_cores() -> int:
    """Return how many threads of this process can run at the same time."""
    return len(os.sched_getaffinity(0))


def has_second_core() -> bool:
    """Return whether a second thread would run at the same time."""
    return n_cores() > 1


def read_ahead(items: Iterator[_T]) -> Iterator[_T]:
    """Yield the same items in the same order, produced by a thread ahead of their use.

    An exception of ``items`` is raised here at its position. The compiled loops release Python's lock, so both
    threads run at the same time. On a single core there is no thread.
    """
    return _from_thread(items) if has_second_core() else items


def _from_thread(items: Iterator[_T]) -> Generator[_T, None, None]:
    ready: Queue[tuple[str, Any]] = Queue(_DEPTH)
    stopped = threading.Event()

    def put(what: str, value: Any = None) -> None:
        while not stopped.is_set():
            try:
                ready.put((what, value), timeout=_WAIT_SECONDS)
                break
            except Full:
                continue

    def run() -> None:
        try:
            for item in items:
                put("item", item)
                if stopped.is_set():
                    return
            put("end")
        except BaseException as error:  # any exception is passed to the consumer
            put("error", error)

    thread = threading.Thread(target=run, name="read ahead", daemon=True)
    thread.start()
    try:
        while True:
            what, value = ready.get()
            if what == "error":
                raise value
            if what == "end":
                return
            yield value
    finally:
        stopped.set()
        thread.join()
