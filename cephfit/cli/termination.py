"""SIGTERM, which a shutdown or a service manager sends, taken as Ctrl-C is."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

TERMINATED = 128 + int(signal.SIGTERM)
"""Exit code of a program that SIGTERM ended: a shell's."""


class TerminatedError(KeyboardInterrupt):
    """SIGTERM came: the program unwinds as at Ctrl-C, and ends with ``TERMINATED``."""


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Within, SIGTERM raises KeyboardInterrupt in the main thread, once; what unwinds then is not disturbed again.

    Programs that are started within are not concerned: the system gives them its own way with SIGTERM.

    Raises:
        TerminatedError: it came, and what was done within ended for it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    has_come = False

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal has_come
        if not has_come:
            has_come = True
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if has_come:
            raise TerminatedError from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
