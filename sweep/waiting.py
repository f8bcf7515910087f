"""Waiting for something that has to come about by itself."""

import time
from collections.abc import Callable


def still_amiss(look: Callable[[], str], *, seconds: float, poll_seconds: float) -> str:
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
