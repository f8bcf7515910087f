"""Lines that the tracer did not write: the traced program's own output, where both went to one terminal."""

from cephfit.traces.files.stream import TraceStream
from cephfit.traces.files.text import bad_line

RUN_MAX = 100
"""More of them one after the other are taken for another file behind the trace."""


class ForeignLines:
    """Counts runs of them, and tells when it is too much."""

    def __init__(self, stream: TraceStream, expected: str) -> None:
        self._stream = stream
        self._expected = expected
        self._first: tuple[int, bytes] | None = None

    def known(self) -> None:
        """The line is one of the tracer's."""
        self._first = None

    def foreign(self, number: int, line: bytes, *, strict: bool = False, cut_off: bool = False) -> None:
        """Raises: InputError: naming the first line of the run, if it is too long or ``strict``."""
        if self._first is None:
            self._first = number, line
        if strict or number - self._first[0] >= RUN_MAX:
            first, text = self._first
            raise bad_line(self._stream, first, text, self._expected, cut_off=cut_off and first == number)
