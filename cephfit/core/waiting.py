"""Wait for a condition by polling, or poll while other work is done."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

_Problems = TypeVar("_Problems", str, tuple[int, ...])


def wait_until_clear(problems: Callable[[], _Problems], *, seconds: float, poll_seconds: float) -> _Problems:
    """Poll until no problem is left, or the time is up.

    Args:
        problems: returns the current problems; empty if there are none.
        seconds: how long to wait at most; ``problems`` is called at least once.
        poll_seconds: between two calls.

    Returns:
        The problems at the last call; empty if none is left.
    """
    deadline = time.monotonic() + seconds
    while (left := problems()) and time.monotonic() < deadline:
        time.sleep(poll_seconds)
    return left


class Polling:
    """Calls a function while a ``with`` block runs: at its begin, every few seconds in a thread, and at its end.

    An error of a call in the thread ends the calls. It is raised at the end of the block, unless the block itself
    raised one.

    Args:
        poll: the function.
        seconds: between two calls.
        name: of the thread.
    """

    def __init__(self, poll: Callable[[], None], *, seconds: float, name: str) -> None:
        self._poll = poll
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll_until_over, name=name, daemon=True)
        self._fault: BaseException | None = None

    def __enter__(self) -> Self:
        self._poll()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if kind is None:
            if self._fault is not None:
                raise self._fault
            self._poll()

    def _poll_until_over(self) -> None:
        while not self._over.wait(self._seconds):
            try:
                self._poll()
            except BaseException as fault:
                self._fault = fault
                return
