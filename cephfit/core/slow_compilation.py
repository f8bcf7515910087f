"""A message when compiling loops takes long, which happens once per machine and version.

This module does not load Numba. A command registers the message; ``traces/compiled.py`` reports the compilations.
"""

import threading
import time
from collections.abc import Callable

SLOW_SECONDS = 1.0
"""No message is shown while the total compilation time is below this."""

_announcers: list[Callable[[], None]] = []


def announce_slow_compilation(say: Callable[[], None]) -> None:
    """Register ``say``: called at most once, from another thread, when compiling exceeds ``SLOW_SECONDS``."""
    _announcers[:] = [say]


class CompilationClock:
    """Measures the total time of compilation; nested and concurrent compilations count once."""

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
