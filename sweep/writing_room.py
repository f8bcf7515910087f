"""How much room data wants on storage, and how that is said."""

from cephfit.units import MIB, format_nbytes

_MARGIN = 1.1
"""Room wanted beyond the data: metadata, the write-ahead log, and OSDs that do not fill evenly."""


def with_margin(nbytes: int) -> int:
    """Bytes that must be free before so many are written."""
    return int(nbytes * _MARGIN)


def about(nbytes: int) -> str:
    """A size for people, in whole MiB."""
    return format_nbytes(max(MIB, nbytes - nbytes % MIB))
