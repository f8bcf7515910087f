"""Python's cyclic garbage collector, paused while many values are made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the collector while the block runs.

    It looks through all values again and again while their number grows, and takes a third of the time in which a
    million samples are read. Samples have no cycles, so it finds nothing there. Other threads are paused as well.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
