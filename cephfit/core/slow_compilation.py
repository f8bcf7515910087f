"""Says when loops are compiled and that takes a while, which happens once per machine and version.

Numba is not loaded by this module: a command announces the message, and ``compiled`` reports if it comes to that.
"""

import threading
import time
from collections.abc import Callable

SLOW_SECONDS = 1.0
"""Compilation that takes less in all is not worth a line."""

_announcers: list[Callable[[], None]] = []


def announce_slow_compilation(say: Callable[[], None]) -> None:
    """Have ``say`` called, at most once and from another thread, when compiling takes longer than a moment."""
    _announcers[:] = [say]


class CompilationClock:
    """Adds up the time in which anything is compiled; nested and concurrent compilations count once."""

    def __init__(self, limit_seconds: float = SLOW_SECONDS) -> None:
        self._left = limit_seconds
        self._depth = 0
        self._begun = 0.0
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        with self._lock:
            self._depth += 1
            if self._depth == 1 and _announcers:
                self._begun = time.monotonic()
                self._timer = threading.Timer(max(0.0, self._left), _announce)
                self._timer.daemon = True
                self._timer.start()

    def end(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self._timer is not None:
                self._timer.cancel()
                self._timer = None
                self._left -= time.monotonic() - self._begun


def _announce() -> None:
    while _announcers:
        _announcers.pop()()
