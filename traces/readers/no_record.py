"""What is said of bytes that are no record of a binary format."""

from cephfit.errors import InputError
from cephfit.traces.files.stream import TraceStream


def no_record(program: str, stream: TraceStream, offset: int) -> InputError:
    """The error; ``program`` is whose records were expected at this byte of the stream."""
    return InputError(
        f"there is no {program} record where one must begin",
        where=f"{stream.name}, byte {offset}",
        remedy="the file is damaged or something else was appended; cut it at this byte and profile the rest",
    )
