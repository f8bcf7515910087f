"""Waiting for something that has to come about by itself."""

import time
from collections.abc import Callable
from typing import TypeVar

_Amiss = TypeVar("_Amiss", str, tuple[int, ...])


def still_amiss(look: Callable[[], _Amiss], *, seconds: float, poll_seconds: float) -> _Amiss:
    """Look until nothing is amiss any more, or the time is up.

    Args:
        look: what is amiss now; empty if nothing is.
        seconds: how long to wait at most; it is looked once in any case.
        poll_seconds: between two looks.

    Returns:
        What was amiss at the last look; empty if it came about.
    """
    deadline = time.monotonic() + seconds
    while (why := look()) and time.monotonic() < deadline:
        time.sleep(poll_seconds)
    return why
