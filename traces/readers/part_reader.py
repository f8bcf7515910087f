"""What readers share whose files can be read in parts side by side."""

from abc import abstractmethod
from collections.abc import Iterator

from cephfit.access import AccessBatch
from cephfit.traces.files.stream import TraceStream
from cephfit.traces.matching.latency import InFlight
from cephfit.traces.readers.reader import StreamReader


class PartReader(StreamReader):
    """Reads text of which a part may begin at any line.

    Attributes:
        timed: whether parts tell latencies.
    """

    timed: bool = False

    @abstractmethod
    def read_part(self, stream: TraceStream, in_flight: InFlight) -> Iterator[AccessBatch]:
        """The accesses of a part of a file.

        Args:
            stream: the part.
            in_flight: counts what is in flight, where latencies are known.

        Raises:
            InputError: naming the file and the line, counted from the part's beginning.
            NotOnItsOwn: the file must be read as a whole.
        """
