"""An interrupt at the right moment, and what is left of what was interrupted."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Interrupted(BaseException):
    """As an interrupt from the keyboard: it comes between any two steps of the main thread."""


@contextmanager
def interrupt_when(is_time: Callable[[], bool]) -> Iterator[list[float]]:
    """Raises ``Interrupted`` in this thread a little after something holds; gives the moment at which it did."""

    def interrupt(_number: int, _frame: object) -> None:
        raise Interrupted

    moments: list[float] = []
    over = threading.Event()

    def watch() -> None:
        deadline = time.monotonic() + 30
        while not is_time() and time.monotonic() < deadline:
            time.sleep(0.02)
        if not over.wait(0.7):
            moments.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield moments
    finally:
        over.set()
        watcher.join()
        signal.signal(signal.SIGUSR1, before)


def started_by_us() -> set[int]:
    """Return the descendants of this process, with zombies."""
    found: set[int] = set()
    level = [os.getpid()]
    while level:
        level = [child for parent in level for child in _children(parent)]
        found.update(level)
    return found


def _children(parent: int) -> list[int]:
    children: list[int] = []
    with suppress(FileNotFoundError):  # the process is over
        for task in Path(f"/proc/{parent}/task").iterdir():
            with suppress(OSError):  # the thread is over
                children += [int(pid) for pid in (task / "children").read_text().split()]
    return children
