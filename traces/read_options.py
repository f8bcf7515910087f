"""Options that describe traces whose content does not describe itself."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.traces.files import remote


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of reading. All are None where the content of the trace suffices.

    Attributes:
        assume_op: the op of all accesses, for a format without ops.
        columns: the columns of a delimited file, as ``named_columns.layout_of`` reads them.
        blkparse_format: the ``-f`` that blkparse was given.
    """

    assume_op: Op | None = None
    columns: str | None = None
    blkparse_format: str | None = None

    @property
    def format_name(self) -> str | None:
        """Return the format that the options imply; None: they imply none."""
        return "columns" if self.columns else "blkparse-f" if self.blkparse_format else None

    def format_with(self, asked: str | None) -> str | None:
        """Return the format that the options and ``--format`` name; None: neither names one.

        Raises:
            InputError: they name different formats.
        """
        implied = self.format_name
        if implied and asked and asked != implied:
            option = "--columns" if self.columns else "--blkparse-format"
            raise InputError(
                f"{option} implies the format {implied}, but --format names {asked}",
                where=f"--format {asked}",
                remedy="use only one of the two options",
            )
        return implied or asked


def read_options(assume_op: str | None, columns: str | None, blkparse_format: str | None) -> ReadOptions:
    """Build ``ReadOptions`` from the words of a command line.

    Raises:
        InputError: two of them exclude each other.
    """
    if columns and blkparse_format:
        raise InputError(
            "--columns and --blkparse-format exclude each other", remedy="give the one that describes the file"
        )
    return ReadOptions(Op(assume_op) if assume_op else None, columns, blkparse_format)


@contextmanager
def parts_hint(files: Sequence[Path], *, parts: bool) -> Iterator[None]:
    """Add a hint about parts to an error in one of several files.

    Args:
        files: that are read within.
        parts: whether they are read as consecutive parts of one trace. The hint is then that a part may be missing
            or in the wrong place; else that ``--parts`` may be missing.

    Raises:
        InputError: as raised within, with the hint in its remedy.
    """
    try:
        yield
    except InputError as error:
        if len(files) == 1 or not error.where.startswith(tuple(map(remote.display_name, files))):
            raise
        if parts:
            hint = "or, if a part is missing or misplaced, give all parts in their order"
        else:
            hint = "or, if the files are consecutive parts of one trace, add --parts"
        raise InputError(error.what, where=error.where, remedy=f"{error.remedy}; {hint}") from None
