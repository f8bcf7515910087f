"""Wait for a condition by polling."""

import time
from collections.abc import Callable
from typing import TypeVar

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
