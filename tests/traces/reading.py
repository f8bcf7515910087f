"""A reader's batches of one file."""

from collections.abc import Iterator
from pathlib import Path

from cephfit.access import AccessBatch
from cephfit.traces.files.stream import TraceStream
from cephfit.traces.readers.reader import StreamReader


def batches_of(reader: StreamReader, path: Path) -> Iterator[AccessBatch]:
    with TraceStream(path) as stream:
        yield from reader.read(stream)
